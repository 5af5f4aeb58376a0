"""When the simulator's operator may lose a disk: never where no voter could be elected afterwards by KRaft's rules."""

import random
from types import SimpleNamespace
from typing import Any

from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet, VotersInLog
from klamm.testing.simulator.operator import Operator


def key(node_id: int, directory: bytes = b"A") -> ReplicaKey:
    return ReplicaKey(node_id, directory)


def replica(node_id: int, voter_ids: list[int], end_offset: int, epoch: int, directory: bytes = b"A") -> Any:
    voters = VotersInLog(VoterSet.of([Voter(key(each), ()) for each in voter_ids]), kraft_version=1)
    return SimpleNamespace(
        id=node_id,
        key=key(node_id, directory),
        core=None,
        next_port=9093,
        lost=[SimpleNamespace(key=key(node_id))] if directory != b"A" else [],
        log=SimpleNamespace(end_offset=end_offset, last_epoch=epoch),
        known_voters=lambda: voters,
    )


def operator(*replicas: Any) -> Operator:
    return Operator(random.Random(1), {each.id: each for each in replicas})


def test_a_disk_that_leaves_a_majority_may_be_lost():
    one, two, three = (replica(each, [1, 2, 3], 10, 1) for each in (1, 2, 3))
    assert operator(one, two, three).may_lose_disk(one)


def test_no_disk_is_lost_where_an_observer_refuses_the_only_candidate():
    # Dynamic seed 502: 3 had appended the addition of 5 when 1 was elected, which truncated it from the log of 5.
    one, two = replica(1, [1, 2, 3], 16, 2), replica(2, [1, 2, 3], 6, 1)
    three, five = replica(3, [1, 2, 3, 5], 35, 1), replica(5, [1, 2, 3], 16, 2)
    assert not operator(one, two, three, five).may_lose_disk(one)
    assert operator(one, two, three, five).may_lose_disk(two)


def test_a_quorum_is_stuck_only_after_a_lost_disk_without_an_electable_voter():
    back = replica(1, [], 0, 0, directory=b"B")
    two, three, five = replica(2, [1, 2, 3], 6, 1), replica(3, [1, 2, 3, 5], 35, 1), replica(5, [1, 2, 3], 16, 2)
    assert operator(back, two, three, five).is_stuck()
    assert not operator(replica(1, [1, 2, 3], 16, 2), two, three, five).is_stuck()
    assert not operator(back, two, replica(3, [1, 2, 3], 35, 1)).is_stuck()
    assert not operator(two, three, five).is_stuck()  # without a lost disk it is a fault of the core
