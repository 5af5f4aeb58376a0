"""Puts the bytes of the log or of a snapshot into a response that the core answered with a range."""

from dataclasses import replace

from klamm.raft.effects import Read, ReadRange
from klamm.raft.log.metadata_log import MetadataLog
from klamm.raft.messages import Error, FetchResponse, FetchSnapshotResponse, Response


def with_bytes(log: MetadataLog, response: Response, read: Read | None) -> Response:
    """The response as it goes to the wire.

    The log may have changed while the response waited for an fsync. A snapshot that was deleted meanwhile is answered
    with SNAPSHOT_NOT_FOUND. Records that were truncated, or removed in favor of a newer snapshot, are answered with no
    records: the follower fetches again.
    """
    if isinstance(read, ReadRange) and isinstance(response, FetchResponse):
        if not log.start_offset <= read.offset < log.end_offset:
            return response
        # Field by field: `replace` would take longer than the read.
        return FetchResponse(
            response.error,
            response.epoch,
            response.leader_id,
            response.high_watermark,
            response.log_start_offset,
            response.diverging,
            response.snapshot_id,
            log.read(read.offset, read.max_bytes),
            response.leader_endpoints,
        )
    if read is None or isinstance(read, ReadRange) or not isinstance(response, FetchSnapshotResponse):
        return response
    data = log.read_snapshot(read.snapshot_id, read.position, read.max_bytes)
    if data is None:
        return FetchSnapshotResponse(
            Error.SNAPSHOT_NOT_FOUND, response.epoch, response.leader_id, leader_endpoints=response.leader_endpoints
        )
    return replace(response, unaligned_records=data)
