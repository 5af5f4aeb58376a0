"""When a snapshot is written, and what is cleaned (KIP-630)."""

import pytest

from klamm.raft.log.metadata_log import OffsetAndEpoch, SnapshotInfo
from klamm.raft.log.snapshots import SnapshotConfig, is_snapshot_due, next_log_start

CONFIG = SnapshotConfig(
    record_bytes_between_snapshots_max=1000,
    snapshot_interval_ms_max=60_000,
    retention_bytes_max=500,
    retention_ms_max=10_000,
)


@pytest.mark.parametrize(
    ("bytes_since", "ms_since", "expected"),
    [
        (0, 10**9, False),  # nothing new: no snapshot, however old the last one is
        (1, 59_999, False),
        (1, 60_000, True),
        (999, 0, False),
        (1000, 0, True),
    ],
)
def test_snapshot_due(bytes_since: int, ms_since: int, expected: bool) -> None:
    assert is_snapshot_due(CONFIG, bytes_since, ms_since) is expected


def test_an_interval_of_zero_makes_none_for_age_alone() -> None:
    assert not is_snapshot_due(SnapshotConfig(snapshot_interval_ms_max=0), 1, 10**12)


def snapshots(*infos: tuple[int, int, int]) -> list[SnapshotInfo]:
    return [SnapshotInfo(OffsetAndEpoch(offset, 1), size, timestamp) for offset, size, timestamp in infos]


@pytest.mark.parametrize(
    ("infos", "log_size", "expected"),
    [
        ([], 10_000, None),
        ([(10, 10_000, 0)], 10_000, None),  # the only one is kept, however large and old
        ([(10, 100, 15_000), (20, 100, 19_000)], 300, None),
        ([(10, 100, 15_000), (20, 100, 19_000)], 301, 20),
        ([(10, 1, 9_999), (20, 1, 19_000)], 0, 20),  # older than the retention
        ([(10, 1, 10_000), (20, 1, 19_000)], 0, None),
    ],
)
def test_next_log_start(infos: list[tuple[int, int, int]], log_size: int, expected: int | None) -> None:
    start = next_log_start(CONFIG, 20_000, snapshots(*infos), log_size)
    assert (start.offset if start is not None else None) == expected


def test_a_negative_retention_keeps_everything() -> None:
    config = SnapshotConfig(retention_bytes_max=-1, retention_ms_max=-1)
    assert next_log_start(config, 10**15, snapshots((1, 10**12, 0), (2, 1, 0)), 10**12) is None
