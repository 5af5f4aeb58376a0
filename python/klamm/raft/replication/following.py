"""The follower's part: finding the leader, fetching from it, and following new leaders (KIP-595)."""

from klamm.raft.effects import AppendFetched, TruncateLog
from klamm.raft.election.elections import Elections, is_meant_for
from klamm.raft.election.role_states import NEVER_MS, Follower
from klamm.raft.log.metadata_log import truncation_offset
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from klamm.raft.replica_state import InvariantError, Replica
from klamm.raft.replication.requests import InFlight
from klamm.raft.replication.snapshot_fetching import SnapshotFetching
from klamm.raft.voters.joining import Joining
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey


class Following:
    """The part of a replica that follows."""

    def __init__(self, replica: Replica, elections: Elections, snapshots: SnapshotFetching) -> None:
        self._replica = replica
        self._elections = elections
        self.joining = Joining(replica)
        self._snapshots = snapshots

    # Learning of leaders

    def is_consistent(self, epoch: int, leader_id: int | None) -> bool:
        """Whether a message's leader can be true: one leader an epoch, and this replica knows when it leads."""
        replica = self._replica
        if leader_id == replica.id:
            return epoch <= replica.epoch
        return epoch != replica.epoch or None in (leader_id, replica.leader_id) or leader_id == replica.leader_id

    def learn(
        self,
        now_ms: int,
        epoch: int,
        leader_id: int | None,
        endpoints: tuple[Endpoint, ...],
        *,
        from_leader: bool = False,
    ) -> None:
        """Adopt the epoch and leader of a consistent message (`KafkaRaftClient.maybeTransition`).

        `from_leader`: the endpoints come from the leader itself. Endpoints from other replicas may predate the leader's
        last restart, so they count only while the leader cannot be reached at its known ones.
        """
        replica = self._replica
        is_reachable = leader_id is not None and replica.knows_way_to(leader_id, endpoints)
        if epoch > replica.epoch and not is_reachable:
            replica.become_unattached(now_ms, epoch, leader_id)
        elif leader_id is not None and is_reachable and leader_id != replica.id and epoch >= replica.epoch:
            # An answer names the one listener that was asked: it contradicts no other.
            is_elsewhere = endpoints != replica.leader_endpoints and not set(endpoints) <= set(replica.leader_endpoints)
            knows_more = (from_leader and is_elsewhere) or len(endpoints) > len(replica.leader_endpoints)
            if epoch > replica.epoch or replica.leader_id is None or knows_more:
                replica.become_follower(now_ms, epoch, leader_id, endpoints)
            elif is_elsewhere and replica.requests.silent_until_ms(now_ms, leader_id) > now_ms:
                replica.leader_endpoints = endpoints  # from another replica: restart no timer

    def on_begin_epoch(self, now_ms: int, request_id: int, request: BeginQuorumEpochRequest) -> None:
        """A leader notifies this replica."""
        replica = self._replica
        error = self._check_leader_request(request)
        if error is Error.NONE:
            self.learn(now_ms, request.epoch, request.leader_id, request.leader_endpoints, from_leader=True)
            error = Error.NONE if is_meant_for(replica, request.voter) else Error.INVALID_VOTER_KEY
        response = BeginQuorumEpochResponse(error, replica.epoch, replica.leader_id, replica.leader_endpoints)
        replica.reply(request_id, response)

    def on_end_epoch(self, now_ms: int, request_id: int, request: EndQuorumEpochRequest) -> None:
        """The leader resigns: campaign at once, or after the candidates that it prefers have had their time."""
        replica = self._replica
        error = self._check_leader_request(request)
        if error is Error.NONE:
            self.learn(now_ms, request.epoch, request.leader_id, request.leader_endpoints)
            if isinstance(replica.state, Follower) and replica.leader_id == request.leader_id:
                replica.state.deadline_ms = now_ms + self._successor_backoff_ms(request.preferred_candidates)
                # It may grant a pre-vote again: a campaign disrupts no leader now. A removed leader has no vote itself.
                replica.state.has_fetched = False
        response = EndQuorumEpochResponse(error, replica.epoch, replica.leader_id, replica.leader_endpoints)
        replica.reply(request_id, response)

    def _check_leader_request(self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> Error:
        replica = self._replica
        if request.cluster_id not in (None, replica.identity.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID
        if request.epoch < replica.epoch:
            return Error.FENCED_LEADER_EPOCH
        # Apache Kafka stops the node on a second leader of one epoch; the sender alone is wrong, so it is refused.
        is_possible = request.leader_id >= 0 and request.leader_id != replica.id
        if not is_possible or not self.is_consistent(request.epoch, request.leader_id):
            return Error.INVALID_REQUEST
        return Error.NONE

    def _successor_backoff_ms(self, candidates: tuple[ReplicaKey, ...]) -> int:
        """0 for the first candidate, then doubling; the maximum for the last and all others (`KafkaRaftClient`)."""
        longest_ms = self._replica.config.election_backoff_max_ms
        for position, candidate in enumerate(candidates):
            if candidate.matches(self._replica.key):
                if position == 0:
                    return 0
                return min(longest_ms, (longest_ms >> (len(candidates) - 1)) << (position - 1))
        return longest_ms

    # Fetching

    def on_fetch_response(self, now_ms: int, response: FetchResponse) -> bool:
        """Append, truncate where the logs diverge, or start to fetch a snapshot; the next tick reads the changed log.

        False if this replica cannot do what the response asks for, or ignores it because a snapshot is being fetched:
        then the next fetch is delayed.
        """
        replica, state = self._replica, self._replica.state
        if not isinstance(state, Follower):
            return True
        is_used = state.fetching is None
        if is_used and not self._take_fetched(state, response):
            return False
        state.has_fetched = True
        state.deadline_ms = now_ms + replica.config.fetch_timeout_ms
        if replica.leader_id is not None:
            replica.requests.hear(now_ms, replica.leader_id)  # only the leader sends records
        return is_used

    def on_heard(self, now_ms: int, heard_ms: int) -> None:
        """The leader answered a streamed fetch."""
        replica, state = self._replica, self._replica.state
        if isinstance(state, Follower):
            state.has_fetched = True
            state.deadline_ms = heard_ms + replica.config.fetch_timeout_ms
        if replica.leader_id is not None:
            replica.requests.hear(now_ms, replica.leader_id)

    def on_leader_high_watermark(self, offset: int) -> None:
        """A streamed fetch raised it, with the records below it, if the leader returned that much."""
        state = self._replica.state
        if isinstance(state, Follower):
            state.leader_high_watermark = max(state.leader_high_watermark, offset)

    def on_streaming_failed(self, now_ms: int) -> None:
        """A streamed fetch failed: for some time each fetch is sent by itself, over the usual connection."""
        if isinstance(self._replica.state, Follower):
            self._replica.state.goes_on_from_ms = now_ms + self._replica.config.fetch_timeout_ms

    def _take_fetched(self, state: Follower, response: FetchResponse) -> bool:
        replica = self._replica
        if response.snapshot_id is not None:
            return self._snapshots.begin(state, response.snapshot_id)
        if response.diverging is not None:
            offset = truncation_offset(replica.log, response.diverging)
            if offset < replica.high_watermark:
                raise InvariantError(
                    f"leader {replica.leader_id} of epoch {replica.epoch} diverges from this log at {offset}, below "
                    f"the high watermark {replica.high_watermark}: it lacks committed records"
                )
            replica.effects.append(TruncateLog(offset))
        else:
            if response.records:
                replica.effects.append(AppendFetched(response.records, replica.epoch))
            state.leader_high_watermark = max(state.leader_high_watermark, response.high_watermark)
        return True

    def tick(self, now_ms: int, state: Follower) -> int:
        """Advance the high watermark, fetch what comes next, campaign when the leader is silent."""
        replica = self._replica
        self.advance_high_watermark()
        deadline_ms = state.deadline_ms if replica.may_campaign else NEVER_MS
        if state.fetching is not None and state.fetching.is_whole:
            return self._wait_for_check(now_ms, state, deadline_ms)
        if now_ms >= deadline_ms:
            self._elections.campaign(now_ms)
            return now_ms
        return min(deadline_ms, self._fetch_from_leader(now_ms, state))

    def advance_high_watermark(self) -> None:
        """Adopt the leader's high watermark, up to the end of this log."""
        replica, state = self._replica, self._replica.state
        if isinstance(state, Follower):
            replica.advance_high_watermark(min(state.leader_high_watermark, self._acknowledged_offset()))

    def _acknowledged_offset(self) -> int:
        """The flushed offset, which a fetch acknowledges. Observers do not count, and fetch lost records again."""
        replica = self._replica
        return replica.log.end_offset if replica.config.never_votes else replica.log.flushed_offset

    def _wait_for_check(self, now_ms: int, state: Follower, deadline_ms: int) -> int:
        """While it waits for the disk, it fetches from no leader. It need not campaign, but others may."""
        if now_ms < deadline_ms:
            return deadline_ms
        state.has_fetched = False
        return NEVER_MS

    def _fetch_from_leader(self, now_ms: int, state: Follower) -> int:
        replica, leader_id = self._replica, self._replica.leader_id
        if leader_id is None:
            raise InvariantError(f"a follower without a leader in epoch {replica.epoch}")
        streaming = replica.requests.streaming(now_ms, leader_id)
        if streaming is not None:
            return self._mind_own_entry(now_ms, state, streaming)
        if self._acknowledged_offset() < replica.log.end_offset:
            return NEVER_MS  # a fetch acknowledges everything below it: flush first
        silent_until_ms = replica.requests.silent_until_ms(now_ms, leader_id)
        if silent_until_ms > now_ms:  # another may know of a newer leader
            return min(silent_until_ms, self.fetch_from_anyone(now_ms))
        busy_until_ms = replica.requests.busy_until_ms(now_ms)
        if busy_until_ms <= now_ms:
            request = self.joining.next_request(now_ms, state) or self._next_fetch(state)
            may_stream = self._may_stream(now_ms, state) and isinstance(request, FetchRequest)
            replica.send(now_ms, leader_id, request, replica.leader_endpoints, may_stream=may_stream)
            return replica.requests.ready_at_ms(leader_id)
        return busy_until_ms

    def _may_stream(self, now_ms: int, state: Follower) -> bool:
        """Whether the leader has answered, and the next request is for records."""
        is_wanted = self._replica.config.fetches_go_on and not self._replica.is_shutting_down
        return is_wanted and state.has_fetched and now_ms >= state.goes_on_from_ms

    def _mind_own_entry(self, now_ms: int, state: Follower, streaming: InFlight) -> int:
        """A streamed fetch leaves no time for other requests to the leader, so it is ended for them."""
        replica = self._replica
        request = self.joining.next_request(now_ms, state)
        if request is None:
            return min(state.voter_due_ms, replica.requests.ready_at_ms(streaming.to))
        replica.requests.end(streaming.correlation_id)
        replica.send(now_ms, streaming.to, request, replica.leader_endpoints)
        return replica.requests.ready_at_ms(streaming.to)

    def fetch_from_anyone(self, now_ms: int) -> int:
        """Fetch from a random voter or bootstrap server: a replica that is not the leader returns the leader it knows.

        Returns when to ask again.
        """
        replica = self._replica
        others = self._known_servers()
        busy_until_ms = replica.requests.busy_until_ms(now_ms)
        if not others or busy_until_ms > now_ms or self._acknowledged_offset() < replica.log.end_offset:
            return busy_until_ms if busy_until_ms > now_ms else NEVER_MS
        ready = [node_id for node_id in others if replica.requests.is_ready(now_ms, node_id)]
        if ready:
            chosen = ready[replica.below(len(ready))]
            replica.send(now_ms, chosen, self._fetch_request(), others[chosen])
            return replica.requests.busy_until_ms(now_ms)
        return min(replica.requests.ready_at_ms(node_id) for node_id in others)

    def _known_servers(self) -> dict[int, tuple[Endpoint, ...]]:
        """The voters, and the bootstrap servers, whose ids are unknown and set below -1 as in Kafka."""
        replica = self._replica
        voters = {voter_id: replica.voters.endpoints(voter_id) for voter_id in replica.voters.others(replica.id)}
        return voters | {-2 - n: (endpoint,) for n, endpoint in enumerate(replica.config.bootstrap_servers)}

    def _next_fetch(self, state: Follower) -> FetchRequest | FetchSnapshotRequest:
        fetching = state.fetching
        return self._fetch_request() if fetching is None else self._snapshots.request(fetching)

    def _fetch_request(self) -> FetchRequest:
        replica = self._replica
        return FetchRequest(
            cluster_id=replica.identity.cluster_id,
            replica=replica.key,
            epoch=replica.epoch,
            fetch_offset=replica.log.end_offset,
            last_fetched_epoch=replica.log.last_epoch,
            high_watermark=replica.high_watermark,
            max_wait_ms=replica.config.fetch_max_wait_ms,
            max_bytes=replica.config.fetch_max_bytes,
        )
