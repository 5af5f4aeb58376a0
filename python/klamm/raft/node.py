"""The sans-IO quorum core: events and the time go in, effects come out (docs/reference/glossary.md: core).

How a driver runs it: call the method of what happened (or `events.happen`), carry out the effects in order, and when
`deadline_ms` has come, which is at once after most events, call `on_tick`. The core reads the log through `LogView`
and never in the same call after an effect that changes it: what depends on the changed log happens on the next tick.
"""

from collections.abc import Sequence
from typing import assert_never

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.effects import Effect, ReadSlice, Reply, SendRequest, ShutdownCompleted, VotersChanged
from klamm.raft.election.crash_detection import CrashDetection
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.elections import Elections
from klamm.raft.election.role_states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    RoleState,
    Unattached,
)
from klamm.raft.log.metadata_log import LogView
from klamm.raft.messages import (
    RESPONSE_OF,
    SNAPSHOT_ERRORS,
    TOP_LEVEL_ERRORS,
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from klamm.raft.replica_state import Replica
from klamm.raft.replication.following import Following
from klamm.raft.replication.leading import Leading
from klamm.raft.replication.requests import FetchLease, InFlight, LeasedFetch, StreamedFetches
from klamm.raft.replication.snapshot_fetching import SnapshotFetching
from klamm.raft.replication.snapshot_serving import SnapshotServing
from klamm.raft.voters.reconfiguration import Reconfiguration
from klamm.raft.voters.voter_set import ReplicaKey, VotersInLog


class RaftNode:
    """One replica of the metadata quorum.

    `voters` count while the log holds none. `now_ms` is any clock that does not run backwards; `seed` feeds the
    election time-outs. Raises InvariantError when the replica must stop.
    """

    def __init__(self, identity: Identity, voters: VotersInLog, config: RaftConfig, log: LogView, seed: int) -> None:
        self.replica = Replica(identity, voters, config, log, seed)
        self.deadline_ms = NEVER_MS
        self._crashes = CrashDetection(self.replica)
        self._elections = Elections(self.replica, self._crashes)
        self._leading = Leading(self.replica)
        self._snapshot_serving = SnapshotServing(self.replica, self._leading)
        self._snapshot_fetching = SnapshotFetching(self.replica)
        self._following = Following(self.replica, self._elections, self._snapshot_fetching)
        self._reconfiguration = Reconfiguration(self.replica, self._leading)
        self._has_said_goodbye = False
        self._awaits_tick = True  # effects of the last event are pending, in particular those of voters in the log

    @property
    def can_append(self) -> bool:
        """Whether this replica leads and its epoch's first batch is in the log."""
        return isinstance(self.replica.state, Leader) and self.replica.state.started

    def fetch_lease(self) -> FetchLease | None:
        """The lease for answering fetches without the core until the next event; None: the core answers each."""
        return None if self._awaits_tick else self._leading.fetch_lease()

    def counts(self, replica: ReplicaKey) -> bool:
        """Whether this replica leads, and the other one's fetches count for the high watermark."""
        return self._leading.counts(replica)

    def is_followed(self, now_ms: int) -> bool:
        """Whether this replica leads other voters, or observers that have fetched lately."""
        return self._leading.is_followed(now_ms)

    def settled(self, effect: SendRequest | Reply) -> SendRequest | Reply:
        """A held effect as it may be sent now: a range of the log is valid only while this replica leads that epoch.

        Later the log may have been truncated and have grown again, and its batches may not continue the follower's log.
        """
        if isinstance(effect, SendRequest) or effect.read is None:
            return effect
        response = effect.response
        if not isinstance(response, FetchResponse | FetchSnapshotResponse):
            return effect
        if isinstance(self.replica.state, Leader) and self.replica.epoch == response.epoch:
            return effect
        refusal: Response = self.replica.fetch_error(Error.NOT_LEADER_OR_FOLLOWER)
        if isinstance(effect.read, ReadSlice):
            refusal = self._snapshot_serving.refusal(Error.NOT_LEADER_OR_FOLLOWER)
        return Reply(effect.request_id, refusal, after=self.replica.ticket)

    def on_start(self, now_ms: int, stored: ElectionState | None) -> list[Effect]:
        """Take the initial role that quorum-state and the log determine (`QuorumState.initialize`)."""
        replica = self.replica
        replica.start(stored, *self._initial_state(now_ms, stored or ElectionState()))
        if replica.voters.is_only_voter(replica.key) and not replica.has_lost_records:
            if isinstance(replica.state, Candidate):
                self._elections.advance(now_ms)
            else:
                self._elections.campaign(now_ms)
        return self._done(now_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Run what is due: timeouts, requests to peers. Sets the next `deadline_ms`."""
        self._awaits_tick = False
        if self.replica.voter_history.follow(self.replica.log):
            self._on_voters_changed(now_ms)
        if self.replica.is_shutting_down and self._may_stop():
            self._following.advance_high_watermark()  # its log may have been replaced by a snapshot since
            self._say_goodbye()
            self.deadline_ms = NEVER_MS
        else:
            self.deadline_ms = self._tick(now_ms, self.replica.state)
        return self._take_effects()

    def on_request(self, now_ms: int, request_id: int, request: Request) -> list[Effect]:
        """Answer a request of a peer, now or later."""
        match request:
            case VoteRequest():
                self._crashes.on_reached_by(request.candidate.id)
                self._elections.on_vote_request(now_ms, request_id, request)
            case BeginQuorumEpochRequest():
                self._crashes.on_sign_of_life(request.leader_id)
                self._following.on_begin_epoch(now_ms, request_id, request)
            case EndQuorumEpochRequest():
                self._following.on_end_epoch(now_ms, request_id, request)
            case FetchRequest():
                self._crashes.on_reached_by(request.replica.id)
                self._leading.on_fetch(now_ms, request_id, request)
            case FetchSnapshotRequest():
                self._snapshot_serving.on_fetch_snapshot(now_ms, request_id, request)
            case AddVoterRequest():
                self._reconfiguration.on_add(now_ms, request_id, request)
            case RemoveVoterRequest():
                self._reconfiguration.on_remove(now_ms, request_id, request)
            case UpdateVoterRequest():
                self._reconfiguration.on_update(now_ms, request_id, request)
            case ApiVersionsRequest():
                raise AssertionError("ApiVersions is answered by the listener")
            case _:
                assert_never(request)
        return self._done(now_ms)

    def on_response(self, now_ms: int, correlation_id: int, response: Response) -> list[Effect]:
        """Process a peer's response, unless its request no longer matters."""
        asked = self.replica.requests.end(correlation_id)
        if asked is not None:
            self._crashes.on_sign_of_life(asked.to)
        if asked is not None and not self._take_response(now_ms, asked, response):
            self.replica.requests.back_off(now_ms, asked.to)
        return self._done(now_ms)

    def on_request_failed(self, now_ms: int, correlation_id: int) -> list[Effect]:
        """A request to a peer failed: back off."""
        asked = self.replica.requests.end(correlation_id)
        if asked is not None:
            self.replica.requests.back_off(now_ms, asked.to)
            if asked.may_stream:
                self._following.on_streaming_failed(now_ms)
            if isinstance(asked.request, ApiVersionsRequest):
                self._reconfiguration.on_api_versions_failed(asked.to)
        return self._done(now_ms)

    def on_streamed_fetches(self, now_ms: int, correlation_id: int, fetched: StreamedFetches) -> list[Effect]:
        """A streamed fetch made progress. The driver reports it before any other event, so that later ones see it."""
        asked = self.replica.requests.renew(correlation_id, fetched.sent_ms, fetched.request)
        if asked is not None:
            # The last messages of a leader may be read after its crash was detected.
            if fetched.heard_ms is not None and not self._crashes.has_seen(now_ms):
                self._crashes.on_sign_of_life(asked.to)
                self._following.on_heard(now_ms, fetched.heard_ms)
            self._following.on_leader_high_watermark(fetched.high_watermark)
        return self._done(now_ms)

    def on_leased_fetches(self, now_ms: int, epoch: int, fetches: Sequence[LeasedFetch]) -> list[Effect]:
        """The driver answered these fetches itself. It reports them before any other event, which then sees them."""
        state = self.replica.state
        if not isinstance(state, Leader) or self.replica.epoch != epoch:
            return []
        for fetch in fetches:
            self._crashes.on_reached_by(fetch.replica.id)
            self._leading.note_progress(state, fetch)
        return self._counted(now_ms)

    def on_peer_crashed(self, now_ms: int, node_id: int) -> list[Effect]:
        """A node closed its connection and refused a new one: if it led, an election need not wait."""
        self._crashes.on_peer_crashed(now_ms, node_id)
        return self._done(now_ms)

    def on_peer_refused(self, now_ms: int, node_id: int) -> list[Effect]:
        """A node refused a connection, perhaps the first: a shutdown need not wait for its vote."""
        self._crashes.on_refused(node_id)
        return self._done(now_ms) if self.replica.is_shutting_down else []

    def on_persisted(self, now_ms: int, ticket: int) -> list[Effect]:
        """quorum-state is durable up to `ticket`: a new leader may now begin its epoch."""
        self.replica.durable_ticket = max(self.replica.durable_ticket, ticket)
        self._leading.maybe_start_epoch()
        return self._done(now_ms)

    def on_append(self, now_ms: int) -> list[Effect]:
        """The leader's driver has appended to the log."""
        self._leading.on_append(now_ms)
        return self._take_effects()

    def on_flushed(self, now_ms: int) -> list[Effect]:
        """More of the log is durable: the leader counts it, a follower may continue to fetch."""
        self._leading.on_flushed(now_ms)
        return self._counted(now_ms)

    def on_snapshot_checked(self, now_ms: int, attempt: int, is_valid: bool) -> list[Effect]:
        """The received snapshot is valid and durable, or invalid."""
        self._snapshot_fetching.on_checked(now_ms, attempt, is_valid)
        return self._done(now_ms)

    def on_kraft_upgrade(self, now_ms: int) -> list[Effect]:
        """The leader must write kraft.version 1 (KIP-853); no effect if the log has it already."""
        self._reconfiguration.upgrade()
        return self._done(now_ms)

    def kraft_upgrade_refusal(self) -> str | None:
        """Why the leader could not write kraft.version 1; None when it could, or has."""
        return self._reconfiguration.upgrade_refusal()

    def is_majority_down(self) -> bool:
        """Whether so many voters refuse connections that the others cannot elect a leader."""
        return self._crashes.has_no_majority()

    def on_resign(self, now_ms: int, epoch: int) -> list[Effect]:
        """Resign from `epoch`; no effect if it has ended already."""
        if isinstance(self.replica.state, Leader) and self.replica.epoch == epoch:
            self.replica.become_resigned(now_ms)
        return self._done(now_ms)

    def on_shutdown(self, now_ms: int) -> list[Effect]:
        """Begin to hand over leadership; `ShutdownCompleted` follows when that is done (`KafkaRaftClient.shutdown`)."""
        self.replica.is_shutting_down = True
        return self._done(now_ms)

    # Start

    def _initial_state(self, now_ms: int, stored: ElectionState) -> tuple[RoleState, ElectionState]:
        replica, deadline_ms = self.replica, self.replica.draw_election_deadline_ms(now_ms)
        if not replica.may_campaign:
            deadline_ms = NEVER_MS
        if stored.epoch < replica.log_end.epoch:
            return Unattached(deadline_ms), ElectionState(replica.log_end.epoch)
        if stored.leader_id == replica.id:
            # This includes a leader that was removed from the voters and may no longer campaign: no voter notifies it
            # of the new leader, and it asks none while it considers itself the last leader.
            end_ms = replica.draw_election_deadline_ms(now_ms)
            return Resigned(end_ms, set(replica.voters.others(replica.id)), ()), stored
        if stored.leader_id is not None:
            # Before the vote is checked, unlike Kafka: a lost campaign whose winner is known is not repeated, and its
            # requests would be invalid once records of that epoch are in the log.
            if replica.knows_way_to(stored.leader_id, ()):
                return Follower(now_ms + replica.config.fetch_timeout_ms), stored
            return Unattached(deadline_ms), stored
        if stored.voted is not None and stored.voted.matches(replica.key) and replica.may_campaign:
            return Candidate(deadline_ms, replica.new_tally()), stored
        return Unattached(deadline_ms), stored

    # Responses

    def _take_response(self, now_ms: int, asked: InFlight, response: Response) -> bool:
        """False when requests to the peer must back off (`KafkaRaftClient.maybeHandleCommonResponse`)."""
        match response:
            case AddVoterResponse() | RemoveVoterResponse():
                return self._following.joining.on_changed(response)
            case ApiVersionsResponse():
                self._reconfiguration.on_api_versions(now_ms, asked.to, response)
                return True
            case _:
                return self._take_epoch_response(now_ms, asked, response)

    def _take_epoch_response(self, now_ms: int, asked: InFlight, response: EpochResponse) -> bool:
        if response.error in TOP_LEVEL_ERRORS:
            is_pre_vote = isinstance(asked.request, VoteRequest) and asked.request.pre_vote
            if response.error is Error.UNSUPPORTED_VERSION and is_pre_vote:
                self._elections.on_pre_vote_unsupported(now_ms)
                return True
            return False
        if not self._following.is_consistent(response.epoch, response.leader_id):
            return False
        if response.epoch < self.replica.epoch or response.error is Error.UNKNOWN_LEADER_EPOCH:
            return False  # a lagging peer does not catch up at once, so back off; Kafka retries without a pause
        is_stale = response.error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER)
        if response.epoch > self.replica.epoch or is_stale:
            return self._learn_from(now_ms, response)
        if response.leader_id is not None:  # the leader may be known already; its endpoints may be new
            self._following.learn(now_ms, response.epoch, response.leader_id, response.leader_endpoints)
        if type(response) is not RESPONSE_OF.get(type(asked.request)):
            return False
        is_of_snapshot = isinstance(response, FetchSnapshotResponse) and response.error in SNAPSHOT_ERRORS
        return (response.error is Error.NONE or is_of_snapshot) and self._take_body(now_ms, asked, response)

    def _learn_from(self, now_ms: int, response: EpochResponse) -> bool:
        before = (self.replica.epoch, self.replica.leader_id)
        self._following.learn(now_ms, response.epoch, response.leader_id, response.leader_endpoints)
        # Nothing new: ask again a little later, not at the speed of the network.
        return before != (self.replica.epoch, self.replica.leader_id)

    def _take_body(self, now_ms: int, asked: InFlight, response: EpochResponse) -> bool:
        match response:
            case VoteResponse():
                self._elections.on_vote_response(now_ms, asked.to, response)
            case FetchResponse():
                # Late, while another by way of a bootstrap server came first: the log has moved on.
                is_late = isinstance(asked.request, FetchRequest) and self._is_behind(asked.request)
                return is_late or self._following.on_fetch_response(now_ms, response)
            case EndQuorumEpochResponse():
                self._leading.on_end_epoch_response(asked.to)
            case FetchSnapshotResponse():
                return self._snapshot_fetching.on_response(now_ms, response)
            case UpdateVoterResponse():
                return self._following.joining.on_updated(now_ms, response)
            case BeginQuorumEpochResponse():
                pass  # the voter shows that it knows by its fetches
            case _:
                assert_never(response)
        return True

    def _is_behind(self, request: FetchRequest) -> bool:
        return request.fetch_offset != self.replica.log.end_offset

    # Voters

    def _on_voters_changed(self, now_ms: int) -> None:
        replica = self.replica
        replica.effects.append(VotersChanged(replica.voters_in_log))
        self._leading.on_voters_changed(now_ms)

    # Time

    def _tick(self, now_ms: int, state: RoleState) -> int:
        match state:
            case Unattached():
                waits = self.replica.is_shutting_down or not self.replica.may_campaign
                if waits or now_ms < state.deadline_ms:
                    fetch_ms = self._following.fetch_from_anyone(now_ms)
                    return min(self._elections.tick_unattached(now_ms, state), fetch_ms)
                return self._elections.tick_unattached(now_ms, state)
            case Prospective() | Candidate():
                return self._elections.tick_nominee(now_ms, state)
            case Leader():
                change_ms = self._reconfiguration.tick(now_ms, state)
                is_over = self.replica.state is not state
                return now_ms if is_over else min(change_ms, self._leading.tick(now_ms, state))
            case Follower():
                return self._following.tick(now_ms, state)
            case Resigned():
                return self._leading.tick_resigned(now_ms, state)
            case _:
                assert_never(state)

    def _may_stop(self) -> bool:
        replica = self.replica
        has_remote_leader = replica.leader_id not in (None, replica.id)
        is_alone = replica.voters.is_only_voter(replica.key) or self._crashes.has_no_majority()
        return not replica.is_voter or is_alone or has_remote_leader or self._crashes.has_no_successor()

    def _say_goodbye(self) -> None:
        if not self._has_said_goodbye:
            self._has_said_goodbye = True
            self.replica.effects.append(ShutdownCompleted())

    def _counted(self, now_ms: int) -> list[Effect]:
        """A leader's high watermark may have advanced: a tick notifies waiters of the commit."""
        state = self.replica.state
        is_settled = isinstance(state, Leader) and state.change is None and self.replica.is_voter
        return self._take_effects() if is_settled else self._done(now_ms)

    def _done(self, now_ms: int) -> list[Effect]:
        self.deadline_ms = now_ms
        self._awaits_tick = True
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        effects, self.replica.effects = self.replica.effects, []
        return effects
