"""The follower's fetch of a snapshot, used when the leader's log no longer holds what it lacks (KIP-630).

The slices come in order from one leader in one epoch; after a change of either, the fetch restarts at position 0. A
complete snapshot is checked and made durable while the log stays as it is. Only then does it replace the log.
"""

from klamm.raft.effects import AppendSnapshotSlice, CheckSnapshot, DropSnapshot, InstallSnapshot
from klamm.raft.election.role_states import Follower, SnapshotFetch
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Error, FetchSnapshotRequest, FetchSnapshotResponse
from klamm.raft.replica_state import Replica


class SnapshotFetching:
    """The part of a follower that replaces its log by a snapshot of the leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def begin(self, state: Follower, snapshot_id: OffsetAndEpoch) -> bool:
        """Fetch that snapshot from now on; False when it cannot be what this replica lacks."""
        if not self._is_ahead(snapshot_id):
            return False
        self._replica.snapshot_attempts += 1
        state.fetching = SnapshotFetch(snapshot_id, self._replica.snapshot_attempts)
        return True

    def request(self, fetching: SnapshotFetch) -> FetchSnapshotRequest:
        """Ask for the slice that comes next."""
        replica = self._replica
        return FetchSnapshotRequest(
            cluster_id=replica.identity.cluster_id,
            replica=replica.key,
            epoch=replica.epoch,
            snapshot_id=fetching.id,
            position=fetching.position,
            max_bytes=replica.config.fetch_snapshot_max_bytes,
        )

    def on_response(self, now_ms: int, response: FetchSnapshotResponse) -> bool:
        """Process a slice, or start with a fetch again. False if the next request to the leader is delayed."""
        state = self._replica.state
        fetching = state.fetching if isinstance(state, Follower) else None
        if not isinstance(state, Follower) or fetching is None or fetching.is_whole:
            return True
        is_gone = response.error is Error.SNAPSHOT_NOT_FOUND or min(response.snapshot_id) < 0
        if is_gone or response.error is Error.POSITION_OUT_OF_RANGE:
            self._hear_from_leader(now_ms, state)
            self._give_up(state)
            return is_gone
        if response.snapshot_id != fetching.id or response.position != fetching.position:
            return False  # Apache Kafka stops the node; the leader alone is wrong, so it is asked again
        if not _is_next_slice(fetching, response):
            self._give_up(state)
            return False
        self._hear_from_leader(now_ms, state)
        self._append(fetching, response)
        return True

    def on_checked(self, now_ms: int, attempt: int, is_valid: bool) -> None:
        """Give up the log for the snapshot, unless the fetch ended meanwhile; or begin again with one that is damaged.

        What depends on the changed log comes with the next tick.
        """
        replica, state = self._replica, self._replica.state
        fetching = state.fetching if isinstance(state, Follower) else None
        if not isinstance(state, Follower) or fetching is None or fetching.attempt != attempt:
            return
        self._hear_from_leader(now_ms, state)  # which was not asked meanwhile
        if not is_valid or not self._is_ahead(fetching.id):
            self._give_up(state)
            if replica.leader_id is not None:
                replica.requests.back_off(now_ms, replica.leader_id)
            return
        state.fetching = None
        replica.effects.append(InstallSnapshot(fetching.id))
        # A snapshot contains only committed records. The next tick reports the commit, once its voters are in force.
        state.leader_high_watermark = max(state.leader_high_watermark, fetching.id.offset)

    def _is_ahead(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether it holds more than this log, of which nothing committed would be lost."""
        replica, end = self._replica, self._replica.log_end
        is_newer = (snapshot_id.epoch, snapshot_id.offset) > (end.epoch, end.offset)
        is_possible = snapshot_id.offset > 0 and 0 <= snapshot_id.epoch <= replica.epoch
        return is_newer and is_possible and snapshot_id.offset >= replica.high_watermark

    def _append(self, fetching: SnapshotFetch, response: FetchSnapshotResponse) -> None:
        effects, data = self._replica.effects, response.unaligned_records
        effects.append(AppendSnapshotSlice(fetching.id, fetching.position, data))
        fetching.position += len(data)
        fetching.size = response.size
        if fetching.is_whole:
            effects.append(CheckSnapshot(fetching.id, fetching.attempt))

    def _hear_from_leader(self, now_ms: int, state: Follower) -> None:
        state.has_fetched = True
        state.deadline_ms = now_ms + self._replica.config.fetch_timeout_ms

    def _give_up(self, state: Follower) -> None:
        state.fetching = None
        self._replica.effects.append(DropSnapshot())


def _is_next_slice(fetching: SnapshotFetch, response: FetchSnapshotResponse) -> bool:
    """Whether the slice continues the snapshot, whose size has not changed."""
    end = fetching.position + len(response.unaligned_records)
    return fetching.position < end <= response.size and fetching.size in (0, response.size)
