"""The leader's part: its log, the others' fetches, the high watermark, check-quorum, resignation (`LeaderState`)."""

from typing import Final

from klamm.raft.effects import AppendControl, ReadRange, Reply
from klamm.raft.election.role_states import NEVER_MS, Leader, ParkedFetch, ReplicaProgress, Resigned
from klamm.raft.log.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    encode_kraft_version,
    encode_leader_change,
    encode_voters,
)
from klamm.raft.log.metadata_log import Diverging, FetchPosition, NeedsSnapshot, check_fetch_position
from klamm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from klamm.raft.replica_state import CHECK_QUORUM_FACTOR, Replica
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.membership import take_voters
from klamm.raft.voters.quorum import UNKNOWN_OFFSET, majority_size, replicated_offset
from klamm.raft.voters.voter_set import BOOTSTRAP_OFFSET, ReplicaKey

# Any client can claim to be a replica: the state for observers stays bounded.
OBSERVERS_MAX: Final = 10_000
# An observer without a fetch for this long is dropped, as by Kafka's leader.
OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000


class Leading:
    """The part of a replica that leads, and that hands over."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # Its own log

    def maybe_start_epoch(self) -> None:
        """Append the epoch's first batch, once no crash can make this replica forget that it leads the epoch.

        Otherwise it might win the same epoch twice and write two records of one offset and epoch.
        """
        state, replica = self._replica.state, self._replica
        if isinstance(state, Leader) and not state.started and replica.durable_ticket >= state.ticket:
            state.started = True
            leader_change = encode_leader_change(replica.id, replica.voters.ids, state.granting)
            records = ((LEADER_CHANGE, leader_change), *self._voters_to_rewrite())
            replica.effects.append(AppendControl(replica.epoch, records))

    def _voters_to_rewrite(self) -> tuple[tuple[int, bytes], ...]:
        """kraft.version and voters, when the log lacks them or this leader's endpoints changed (KIP-853)."""
        replica, known = self._replica, self._replica.voters_in_log
        if known.kraft_version == 0:
            return ()
        own = known.voters.get(replica.id)
        voters = known.voters
        if own is not None and replica.identity.endpoints and own.endpoints != replica.identity.endpoints:
            voters = voters.with_voter(own._replace(endpoints=replica.identity.endpoints))
        if known.offset != BOOTSTRAP_OFFSET and voters == known.voters:
            return ()
        return (KRAFT_VERSION, encode_kraft_version(known.kraft_version)), (KRAFT_VOTERS, encode_voters(voters))

    def on_voters_changed(self, now_ms: int) -> None:
        """Count the voters of the set that is in force from now on."""
        state = self._replica.state
        if isinstance(state, Leader):
            take_voters(self._replica, state, now_ms)
            self._maybe_advance_high_watermark(state)
            self.on_append(now_ms)  # the record is there to be fetched

    def on_append(self, now_ms: int) -> None:
        """Answer the fetches that waited for the records appended just now."""
        state = self._replica.state
        if isinstance(state, Leader) and state.parked:
            ready = [parked for parked in state.parked.values() if self._has_more(state, parked.request)]
            self._answer_parked(state, ready)

    def _has_more(self, state: Leader, request: FetchRequest) -> bool:
        """Whether there is something to fetch: all appended records for a replica with a voter's id, whose fetches
        commit them.

        For others the committed records: with them comes the high watermark that they need, in one response instead of
        two.
        """
        receives_all = request.replica.id in state.voters
        end_offset = self._replica.log.end_offset if receives_all else state.high_watermark
        return request.fetch_offset < end_offset

    def on_flushed(self, now_ms: int) -> None:
        """Count this replica's own log up to what survives a power cut (docs/decisions/0001)."""
        if isinstance(self._replica.state, Leader):
            self._maybe_advance_high_watermark(self._replica.state)

    # The others' fetches

    def on_fetch(self, now_ms: int, request_id: int, request: FetchRequest) -> None:
        """Answer a fetch at once if there is anything new, otherwise park it."""
        state, error = self._replica.state, self._check(request)
        if error is not Error.NONE or not isinstance(state, Leader):
            self._replica.reply(request_id, self._replica.fetch_error(error))
            return
        position = check_fetch_position(self._replica.log, request.fetch_offset, request.last_fetched_epoch)
        if isinstance(position, Diverging | NeedsSnapshot):
            self._answer(state, request_id, request, position)
            return
        end_offset = self._replica.log.end_offset
        self.note_progress(state, LeasedFetch(now_ms, request.replica, request.fetch_offset, end_offset))
        knows_less = request.high_watermark < state.high_watermark
        if self._has_more(state, request) or request.max_wait_ms == 0 or knows_less:
            self._answer(state, request_id, request, position)
        else:
            state.parked[request_id] = ParkedFetch(request_id, request, now_ms + request.max_wait_ms)

    def _check(self, request: FetchRequest) -> Error:
        is_possible = request.max_wait_ms >= 0 and request.fetch_offset >= 0
        is_possible = is_possible and 0 <= request.last_fetched_epoch <= request.epoch
        return self.check_asker(request, is_possible=is_possible)

    def check_asker(self, request: FetchRequest | FetchSnapshotRequest, *, is_possible: bool) -> Error:
        """Whether this replica leads the epoch and cluster of the request; `is_possible`: whether the rest is valid."""
        replica = self._replica
        if request.cluster_id not in (None, replica.identity.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID
        if not is_possible or request.replica.id == replica.id:
            return Error.INVALID_REQUEST
        if request.epoch < replica.epoch:
            return Error.FENCED_LEADER_EPOCH
        if request.epoch > replica.epoch:
            return Error.UNKNOWN_LEADER_EPOCH  # a fetch never raises the receiver's epoch (KIP-595)
        if not isinstance(replica.state, Leader):
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.BROKER_NOT_AVAILABLE if replica.is_shutting_down else Error.NONE

    def note_progress(self, state: Leader, fetch: LeasedFetch) -> None:
        """Record a replica's progress by its fetch, as of its arrival."""
        at_ms, replica, fetch_offset, leader_end_offset = fetch
        if replica.id < 0:
            return  # an observer without an id
        progress = state.voters.get(replica.id)
        if progress is None or not _counts(state, replica):
            _observer(state, replica).on_fetch(at_ms, fetch_offset, leader_end_offset)
            return
        progress.on_fetch(at_ms, fetch_offset, leader_end_offset)
        self.count_for_quorum(at_ms, state, replica)
        self._maybe_advance_high_watermark(state)

    def count_for_quorum(self, now_ms: int, state: Leader, voter: ReplicaKey) -> None:
        """Count a voter's fetch; the check-quorum timer restarts when a majority has fetched (KIP-595)."""
        replica = self._replica
        state.fetched_voters.add(voter.id)
        needed = majority_size(len(replica.voters)) - (1 if replica.is_voter else 0)
        if len(state.fetched_voters) >= needed:
            state.fetched_voters.clear()
            state.check_quorum_deadline_ms = now_ms + int(replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    def _maybe_advance_high_watermark(self, state: Leader) -> None:
        replica = self._replica
        end_offsets = [progress.end_offset for progress in state.voters.values()]
        if replica.is_voter:
            end_offsets.append(replica.log.flushed_offset)
        offset = replicated_offset(end_offsets)
        # Records of earlier epochs are committed only by a record of this epoch (Raft 5.4.2).
        if offset <= state.epoch_start_offset or offset <= state.high_watermark:
            return
        first_of_epoch = state.high_watermark == UNKNOWN_OFFSET
        state.high_watermark = offset
        # Every parked fetch has a lower high watermark (KIP-1166). Brokers are notified before the callers that wait
        # for the commit, who may query a broker next. Voters are notified last: no caller depends on them.
        observers = [parked for parked in state.parked.values() if not _counts(state, parked.request.replica)]
        self._answer_parked(state, observers)
        replica.advance_high_watermark(offset)
        if first_of_epoch:
            replica.announce_leadership()
        self._answer_parked(state, list(state.parked.values()))

    def _answer_parked(self, state: Leader, ready: list[ParkedFetch]) -> None:
        for parked in ready:
            del state.parked[parked.request_id]
            position = check_fetch_position(
                self._replica.log, parked.request.fetch_offset, parked.request.last_fetched_epoch
            )
            self._answer(state, parked.request_id, parked.request, position)

    def _answer(self, state: Leader, request_id: int, request: FetchRequest, position: FetchPosition) -> None:
        replica, read = self._replica, None
        diverging = position.end if isinstance(position, Diverging) else None
        snapshot_id = position.id if isinstance(position, NeedsSnapshot) else None
        if diverging is None and snapshot_id is None and request.fetch_offset < replica.log.end_offset:
            read = ReadRange(request.fetch_offset, request.max_bytes)
        response = FetchResponse(
            Error.NONE,
            replica.epoch,
            replica.id,
            high_watermark=state.high_watermark,
            log_start_offset=replica.log.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
            leader_endpoints=replica.leader_endpoints,
        )
        replica.effects.append(Reply(request_id, response, after=replica.ticket, read=read))

    # Fetches that are answered without it

    def fetch_lease(self) -> FetchLease | None:
        """The lease, while no voter changes and a record of this epoch is committed.

        Then such a fetch moves only the progress of its sender and the high watermark.
        """
        replica, state = self._replica, self._replica.state
        if not replica.config.fetches_leased or not isinstance(state, Leader) or replica.is_shutting_down:
            return None
        is_durable = state.started and replica.durable_ticket >= replica.ticket
        if not is_durable or state.high_watermark <= state.epoch_start_offset or state.change is not None:
            return None
        return FetchLease(
            replica.epoch,
            state.epoch_start_offset,
            state.high_watermark,
            tuple((voter_id, progress.end_offset) for voter_id, progress in state.voters.items()),
            replica.is_voter,
            replica.voters_in_log,
            replica.leader_endpoints,
        )

    def counts(self, replica: ReplicaKey) -> bool:
        """Whether that replica's fetches count for the high watermark."""
        return isinstance(self._replica.state, Leader) and _counts(self._replica.state, replica)

    def is_followed(self, now_ms: int) -> bool:
        """Whether this replica leads other voters, or observers that have fetched lately."""
        state = self._replica.state
        if not isinstance(state, Leader):
            return False
        oldest_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
        return bool(state.voters) or any(each.last_fetch_ms > oldest_ms for each in state.observers.values())

    # Time

    def tick(self, now_ms: int, state: Leader) -> int:
        """Resign without a majority, notify voters, end waits. Returns when to check again."""
        if now_ms >= state.check_quorum_deadline_ms or self._replica.is_shutting_down:
            self._replica.become_resigned(now_ms)
            return now_ms
        if now_ms >= state.begin_epoch_due_ms:
            self._send_begin_epoch(now_ms, state)
        # The leader's own appends, in particular its epoch's first batch, are processed here.
        due = [p for p in state.parked.values() if p.deadline_ms <= now_ms or self._has_more(state, p.request)]
        self._answer_parked(state, due)
        waits = (parked.deadline_ms for parked in state.parked.values())
        return min(state.check_quorum_deadline_ms, state.begin_epoch_due_ms, *waits)

    def _send_begin_epoch(self, now_ms: int, state: Leader) -> None:
        """Send BeginQuorumEpoch to the voters that have not fetched recently (only to those since Kafka 4.2)."""
        replica, period_ms = self._replica, self._replica.config.fetch_timeout_ms // 2
        for voter_id, progress in sorted(state.voters.items()):
            is_quiet = progress.last_fetch_ms < 0 or now_ms - progress.last_fetch_ms >= period_ms
            if is_quiet and replica.requests.is_ready(now_ms, voter_id):
                request = BeginQuorumEpochRequest(
                    replica.identity.cluster_id, progress.key, replica.id, replica.epoch, replica.identity.endpoints
                )
                replica.send(now_ms, voter_id, request)
        state.begin_epoch_due_ms = now_ms + period_ms

    def tick_resigned(self, now_ms: int, state: Resigned) -> int:
        """Notify the voters until they acknowledge, then raise the epoch to leave it. Returns the next deadline, in ms.

        With a raised epoch this replica cannot follow itself, and its responses no longer name it as the leader.
        """
        replica = self._replica
        deadline_ms = NEVER_MS if replica.is_shutting_down else state.deadline_ms
        if now_ms >= deadline_ms:
            replica.become_unattached(now_ms, replica.epoch + 1)
            return now_ms
        for voter_id in sorted(state.unacknowledged):
            if replica.requests.is_ready(now_ms, voter_id):
                replica.send(now_ms, voter_id, self._end_epoch_request(state))
            deadline_ms = min(deadline_ms, replica.requests.ready_at_ms(voter_id))
        return deadline_ms

    def _end_epoch_request(self, state: Resigned) -> EndQuorumEpochRequest:
        # Kafka's leaders leave LeaderEndpoints empty here too (`KafkaRaftClient.buildEndQuorumEpochRequest`).
        replica = self._replica
        return EndQuorumEpochRequest(replica.identity.cluster_id, replica.id, replica.epoch, state.preferred_successors)

    def on_end_epoch_response(self, voter_id: int) -> None:
        """A voter knows that this replica resigned."""
        if isinstance(self._replica.state, Resigned):
            self._replica.state.unacknowledged.discard(voter_id)


def _counts(state: Leader, replica: ReplicaKey) -> bool:
    """Whether a voter asks, and not a broker or a voter with a replaced disk."""
    progress = state.voters.get(replica.id)
    return progress is not None and progress.key.matches(replica)


def _observer(state: Leader, replica: ReplicaKey) -> ReplicaProgress:
    """The progress of an observer. If there are too many, the one with the oldest fetch is removed."""
    if replica not in state.observers and len(state.observers) >= OBSERVERS_MAX:
        del state.observers[min(state.observers, key=lambda key: state.observers[key].last_fetch_ms)]
    return state.observers.setdefault(replica, ReplicaProgress(replica))
