"""The leader's responses to FetchSnapshot requests (KIP-630)."""

from dataclasses import replace

from klamm.raft.effects import ReadSlice, Reply
from klamm.raft.election.role_states import Leader
from klamm.raft.log.metadata_log import NOTHING, OffsetAndEpoch
from klamm.raft.messages import Error, FetchSnapshotRequest, FetchSnapshotResponse
from klamm.raft.replica_state import Replica
from klamm.raft.replication.leading import Leading


class SnapshotServing:
    """The part of a replica that serves its snapshots, one slice in each response."""

    def __init__(self, replica: Replica, leading: Leading) -> None:
        self._replica = replica
        self._leading = leading

    def on_fetch_snapshot(self, now_ms: int, request_id: int, request: FetchSnapshotRequest) -> None:
        """Answer with a slice or an error. The fetch counts for check-quorum, as in Kafka's `LeaderState`."""
        replica, state = self._replica, self._replica.state
        error = self._leading.check_asker(request, is_possible=request.max_bytes > 0)
        size = self._size(request.snapshot_id)
        if error is Error.NONE and size is None:
            error = Error.SNAPSHOT_NOT_FOUND
        if error is Error.NONE and size is not None and not 0 <= request.position < size:
            error = Error.POSITION_OUT_OF_RANGE
        if error is not Error.NONE or size is None or not isinstance(state, Leader):
            replica.reply(request_id, self.refusal(error))
            return
        progress = state.voters.get(request.replica.id)
        if progress is not None and progress.key.matches(request.replica):
            self._leading.count_for_quorum(now_ms, state, request.replica)
        response = replace(
            self.refusal(Error.NONE), snapshot_id=request.snapshot_id, size=size, position=request.position
        )
        read = ReadSlice(request.snapshot_id, request.position, request.max_bytes)
        replica.effects.append(Reply(request_id, response, after=replica.ticket, read=read))

    def refusal(self, error: Error) -> FetchSnapshotResponse:
        """An answer without a slice."""
        replica = self._replica
        return FetchSnapshotResponse(error, replica.epoch, replica.leader_id, leader_endpoints=replica.leader_endpoints)

    def _size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        # The snapshot 0-0 is local to each directory: the first leader writes its content to the log (KIP-853).
        return None if snapshot_id == NOTHING else self._replica.log.snapshot_size(snapshot_id)
