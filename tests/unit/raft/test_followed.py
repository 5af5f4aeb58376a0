"""Whether a leader writes NoOp records, because other voters or fetching observers need to see the log advance."""

from __future__ import annotations

from tests.unit.raft.test_node import Bench, fetch, started

from klamm.raft import events
from klamm.raft.election.roles import Role
from klamm.raft.messages import Error
from klamm.raft.replication.leading import OBSERVER_SESSION_TIMEOUT_MS
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog


def is_followed(bench: Bench) -> bool:
    return bench.node.is_followed(bench.now_ms)


def leading_alone() -> Bench:
    bench = started(voters=VotersInLog(VoterSet.of_ids([1])))
    bench.feed(events.Ticked())
    assert bench.replica.role is Role.LEADER
    return bench


def asks(bench: Bench, replica_id: int) -> None:
    bench.log.flushed_offset = bench.log.end_offset
    answer = bench.ask(
        fetch(replica=ReplicaKey(replica_id, b"o" * 16), epoch=bench.replica.epoch, last_fetched_epoch=0)
    )
    assert answer is not None
    assert answer.error is Error.NONE


def test_a_sole_voter_is_followed_while_an_observer_fetches() -> None:
    bench = leading_alone()
    assert not is_followed(bench)
    asks(bench, 7)
    assert is_followed(bench)
    bench.now_ms += OBSERVER_SESSION_TIMEOUT_MS - 1
    assert is_followed(bench)
    bench.now_ms += 1
    assert not is_followed(bench)
    asks(bench, 7)
    assert is_followed(bench)


def test_a_copy_of_the_log_without_an_id_is_no_observer() -> None:
    bench = leading_alone()
    asks(bench, -1)
    assert not is_followed(bench)


def test_with_other_voters_the_log_always_advances() -> None:
    bench = started()
    assert not is_followed(bench), "it does not lead"
    bench.lead()
    assert is_followed(bench)
