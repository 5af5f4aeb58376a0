"""When to write a snapshot, and which snapshots and how much of the log to clean (KIP-630, KIP-876)."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol.value import Value
from klamm.raft.log.metadata_log import OffsetAndEpoch, SnapshotInfo


class SnapshotConfig(Value):
    """Kafka's keys; a retention below 0 keeps everything, an interval of 0 disables snapshots by age."""

    record_bytes_between_snapshots_max: int = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
    snapshot_interval_ms_max: int = 3_600_000  # metadata.log.max.snapshot.interval.ms
    retention_bytes_max: int = 100 << 20  # metadata.max.retention.bytes: log and snapshots
    retention_ms_max: int = 7 * 24 * 3_600_000  # metadata.max.retention.ms


def is_snapshot_due(config: SnapshotConfig, bytes_since_last: int, ms_since_last: int) -> bool:
    """Whether there are many new committed bytes since the last snapshot, or any and the snapshot is old."""
    if bytes_since_last >= config.record_bytes_between_snapshots_max:
        return True
    return bytes_since_last > 0 and 0 < config.snapshot_interval_ms_max <= ms_since_last


def next_log_start(
    config: SnapshotConfig, wall_ms: int, snapshots: Sequence[SnapshotInfo], log_size_bytes: int
) -> OffsetAndEpoch | None:
    """The snapshot at which the log should start; None if nothing can be deleted.

    `snapshots` are oldest first. One snapshot always stays. Call it again after each step: the log's size has changed.
    """
    if len(snapshots) < 2:
        return None
    oldest, successor = snapshots[0], snapshots[1]
    total_bytes = log_size_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    is_too_big = 0 <= config.retention_bytes_max < total_bytes
    age_ms = wall_ms - oldest.last_contained_log_timestamp_ms
    is_too_old = 0 <= config.retention_ms_max < age_ms
    return successor.id if is_too_big or is_too_old else None
