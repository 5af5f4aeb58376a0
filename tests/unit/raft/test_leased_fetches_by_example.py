"""Examples of fetches answered without the core: reports, permissions, and who counts."""

import pytest
from tests.unit.raft.test_guards import SECOND, THIRD, SlowDisk, add, caught_up
from tests.unit.raft.test_leased_fetches import (
    ANSWERED,
    OTHER_DISK,
    OUTSIDER,
    endpoints,
    keyed_voters,
    shown,
    static_voters,
)
from tests.unit.raft.test_node import HERE, Bench, fetch, started, vote
from tests.unit.raft.voters.test_reconfiguration import update

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    ApiVersionsResponse,
    Error,
    RemoveVoterRequest,
)
from klamm.raft.node import RaftNode
from klamm.raft.replication import leading
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet, VotersInLog


def leader(voters: VotersInLog | None = None, config: RaftConfig = ANSWERED, *, commits: bool = True) -> Bench:
    """Leads epoch 1, whose first record the second voter has."""
    bench = started(voters=voters, config=config, endpoints=endpoints(1))
    bench.lead()
    if commits:
        caught_up(bench, SECOND)
        assert bench.replica.state.high_watermark == bench.log.end_offset
    return bench


def keyed_leader() -> Bench:
    """Leads voters 1 to 3, which are known by directory; everything is committed."""
    bench = leader(keyed_voters(3))
    assert bench.replica.voters_in_log.offset is not None
    return bench


def news(bench: Bench, replica: ReplicaKey, offset: int | None = None, at_ms: int | None = None) -> LeasedFetch:
    end_offset = bench.log.end_offset
    at_ms = bench.now_ms if at_ms is None else at_ms
    return LeasedFetch(at_ms, replica, end_offset if offset is None else offset, end_offset)


def tell(bench: Bench, *fetches: LeasedFetch, epoch: int = 1) -> list[fx.Effect]:
    """Report fetches, and run the resulting effects."""
    effects = bench.node.on_leased_fetches(bench.now_ms, epoch, fetches)
    bench.apply(effects)
    return effects


class TestReports:
    @pytest.mark.parametrize("epoch", [0, 2])
    def test_of_another_epoch_changes_nothing(self, epoch):
        bench = leader()
        bench.feed(events.PeerRefused(3))
        before, deadline_ms = shown(bench.node), bench.node.deadline_ms
        assert tell(bench, news(bench, SECOND), news(bench, THIRD), news(bench, OUTSIDER), epoch=epoch) == []
        assert (shown(bench.node), bench.node.deadline_ms) == (before, deadline_ms)
        assert bench.node.fetch_lease() is not None

    @pytest.mark.parametrize("role", [Role.RESIGNED, Role.UNATTACHED, Role.FOLLOWER])
    def test_changes_nothing_for_a_former_leader(self, role):
        bench = leader()
        if role is Role.RESIGNED:
            bench.feed(events.ResignRequested(1))
        elif role is Role.UNATTACHED:
            bench.ask(vote(epoch=2, log_end=OffsetAndEpoch(0, 0)))
        else:
            bench.follow(2, 2)
        assert bench.replica.role is role
        bench.feed(events.PeerRefused(3))
        before, deadline_ms = shown(bench.node), bench.node.deadline_ms
        for epoch in (1, 2):
            assert tell(bench, news(bench, THIRD), epoch=epoch) == []
        assert (shown(bench.node), bench.node.deadline_ms) == (before, deadline_ms)

    def test_of_a_voter_restarts_the_check_quorum_timer_at_its_arrival(self):
        bench = leader()
        elected_ms = bench.now_ms
        bench.now_ms += 2999
        tell(bench, news(bench, THIRD, at_ms=elected_ms + 1200))
        assert bench.replica.state.check_quorum_deadline_ms == elected_ms + 1200 + 3000
        bench.now_ms = elected_ms + 1200 + 2999
        bench.feed(events.Ticked())
        assert bench.replica.role is Role.LEADER
        bench.pass_time(1)
        assert bench.replica.role is Role.RESIGNED

    def test_of_an_observer_does_not_restart_it(self):
        bench = leader()
        before_ms = bench.replica.state.check_quorum_deadline_ms
        bench.now_ms += 10
        tell(bench, news(bench, OUTSIDER), news(bench, ReplicaKey(-1)))
        assert bench.replica.state.check_quorum_deadline_ms == before_ms
        assert list(bench.replica.state.observers) == [OUTSIDER]

    def test_updates_last_caught_up_times_with_the_log_end_at_that_time(self):
        bench = leader()
        end_offset, came_ms = bench.log.end_offset, bench.now_ms + 5
        bench.log.append([b"new"] * 3, 1, 0)
        bench.now_ms += 100
        tell(bench, LeasedFetch(came_ms, THIRD, end_offset, end_offset))
        progress = bench.replica.state.voters[3]
        assert (progress.last_caught_up_ms, progress.last_fetch_ms) == (came_ms, came_ms)
        assert (progress.end_offset, progress.last_fetch_leader_end_offset) == (end_offset, end_offset)

    def test_answers_parked_fetches_of_brokers_before_those_of_voters(self):
        bench = leader()
        committed = bench.log.end_offset
        bench.log.append([b"new"] * 3, 1, 0)
        waits = {"last_fetched_epoch": 1, "max_wait_ms": 500}
        assert bench.ask(fetch(replica=THIRD, fetch_offset=bench.log.end_offset, **waits)) is None
        of_voter = bench.next_request_id
        assert bench.ask(fetch(replica=OUTSIDER, fetch_offset=committed, **waits)) is None
        of_broker = bench.next_request_id
        bench.log.flushed_offset = bench.log.end_offset
        broker, advanced, voter = tell(bench, news(bench, OUTSIDER), news(bench, SECOND))
        assert advanced == fx.HighWatermarkAdvanced(bench.log.end_offset)
        assert (broker.request_id, voter.request_id) == (of_broker, of_voter)
        assert bench.replica.state.parked == {}

    def test_of_a_restarted_replica_is_a_sign_of_life(self):
        bench = leader()
        for node_id in (2, 3):
            bench.feed(events.PeerRefused(node_id))
        assert bench.node.is_majority_down()
        tell(bench, news(bench, THIRD))
        assert not bench.node.is_majority_down()

    def test_that_commits_the_leaders_removal_makes_it_resign(self):
        bench = keyed_leader()
        caught_up(bench, THIRD)
        assert bench.ask(RemoveVoterRequest(None, ReplicaKey(1))) is None
        assert bench.node.fetch_lease() is None, "the change is under way"
        bench.pass_time(2000)
        fetch_lease = bench.node.fetch_lease()
        assert fetch_lease is not None, "it took too long, and still may be committed"
        assert not fetch_lease.counts_itself
        tell(bench, news(bench, SECOND), news(bench, THIRD))
        assert bench.node.deadline_ms == bench.now_ms
        assert bench.node.fetch_lease() is None
        bench.feed(events.Ticked())
        assert bench.replica.role is Role.RESIGNED

    def test_keeps_no_more_observers_than_fetches_do(self, monkeypatch):
        monkeypatch.setattr(leading, "OBSERVERS_MAX", 2)
        bench = leader()
        for node_id in (7, 8, 9):
            bench.now_ms += 1
            tell(bench, news(bench, ReplicaKey(node_id)))
        assert list(bench.replica.state.observers) == [ReplicaKey(8), ReplicaKey(9)]


class TestPermissions:
    @pytest.mark.parametrize("voters", [static_voters(3), keyed_voters(3)], ids=["static", "keyed"])
    def test_contains_what_the_driver_needs(self, voters):
        bench = leader(voters)
        bench.log.append([b"new"], 1, 0)
        caught_up(bench, THIRD)
        end_offset = bench.log.end_offset
        assert bench.node.fetch_lease() == FetchLease(
            epoch=1,
            epoch_start_offset=0,
            high_watermark=end_offset - 1,
            voters=((2, end_offset - 1), (3, end_offset)),
            counts_itself=True,
            voters_in_log=bench.replica.voters_in_log,
            leader_endpoints=endpoints(1),
        )

    def test_follows_the_events_of_the_core(self):
        bench = leader()
        bench.log.append([b"new"], 1, 0)
        bench.log.flushed_offset = end_offset = bench.log.end_offset
        bench.feed(events.Appended())
        bench.feed(events.Flushed())
        assert bench.node.fetch_lease().high_watermark == end_offset - 1
        tell(bench, news(bench, THIRD))
        fetch_lease = bench.node.fetch_lease()
        assert (fetch_lease.high_watermark, fetch_lease.voters) == (end_offset, ((2, end_offset - 1), (3, end_offset)))

    def test_is_none_when_not_requested(self):
        assert leader(config=RaftConfig()).node.fetch_lease() is None

    def test_is_none_without_leadership(self):
        bench = started(config=ANSWERED)
        assert bench.node.fetch_lease() is None
        bench.follow(2, 1)
        assert bench.node.fetch_lease() is None
        bench = leader()
        bench.feed(events.ResignRequested(1))
        assert (bench.replica.role, bench.node.fetch_lease()) == (Role.RESIGNED, None)

    def test_is_none_until_the_election_is_durable_and_the_epoch_has_committed(self):
        bench = SlowDisk()
        bench.node = RaftNode(Identity(ReplicaKey(1, HERE), "cluster"), static_voters(3), ANSWERED, bench.log, 1)
        bench.feed(events.Started(None))
        bench.lead()
        assert bench.node.fetch_lease() is None
        caught_up(bench, SECOND)
        assert bench.node.fetch_lease() is None, "nothing of the epoch is in the log"
        bench.feed(events.Persisted(bench.tickets[-1]))
        assert bench.node.can_append
        assert bench.node.fetch_lease() is None, "its first record is not committed"
        caught_up(bench, SECOND)
        assert bench.node.fetch_lease() is not None

    def test_is_none_while_the_voters_change(self):
        bench = keyed_leader()
        caught_up(bench, OUTSIDER)
        assert add(bench, OUTSIDER) is None
        assert bench.node.fetch_lease() is None, "it is asked for its versions"
        bench.answer(OUTSIDER.id, ApiVersionsResponse(Error.NONE, (0, 1)))
        assert bench.node.fetch_lease() is None, "its record is not committed"
        caught_up(bench, THIRD)
        caught_up(bench, OUTSIDER)
        fetch_lease = bench.node.fetch_lease()
        assert fetch_lease.voters_in_log.voters.ids == (1, 2, 3, 9)
        assert [voter_id for voter_id, _ in fetch_lease.voters] == [2, 3, 9]

    def test_is_none_until_the_voters_in_the_log_are_in_effect(self):
        bench = leader()
        for node_id in (2, 3):
            bench.ask(update(node_id))
        assert bench.node.fetch_lease().voters_in_log.kraft_version == 0
        bench.apply(bench.node.on_kraft_upgrade(bench.now_ms))
        assert bench.node.fetch_lease() is None, "from now on directories count, and the core has not looked yet"
        bench.feed(events.Ticked())
        fetch_lease = bench.node.fetch_lease()
        assert fetch_lease.voters_in_log.kraft_version == 1
        assert fetch_lease.voters == ((2, -1), (3, -1)), "voters known by directory start at -1"

    def test_is_none_during_a_shutdown(self):
        bench = Bench(VotersInLog(VoterSet.of_ids([1])), config=ANSWERED)
        bench.feed(events.Started(None))
        bench.feed(events.Flushed())
        assert bench.node.fetch_lease() is not None
        bench.feed(events.ShutdownRequested())
        assert bench.replica.role is Role.LEADER, "there is no other voter to hand over to"
        assert bench.node.fetch_lease() is None


class TestVoters:
    def test_a_static_voter_is_identified_by_its_id(self):
        bench = leader()
        assert all(bench.node.counts(key) for key in (SECOND, THIRD, ReplicaKey(2), ReplicaKey(2, OTHER_DISK)))
        assert not any(bench.node.counts(key) for key in (OUTSIDER, ReplicaKey(-1), bench.replica.key))

    def test_a_dynamic_voter_is_identified_by_its_directory_too(self):
        bench = keyed_leader()
        assert all(bench.node.counts(key) for key in (SECOND, THIRD))
        others = (ReplicaKey(2), ReplicaKey(2, OTHER_DISK), OUTSIDER, ReplicaKey(-1), bench.replica.key)
        assert not any(bench.node.counts(key) for key in others)

    def test_there_are_none_without_leadership(self):
        bench = started(config=ANSWERED)
        bench.follow(2, 1)
        assert not any(bench.node.counts(key) for key in (SECOND, THIRD))
