"""The check of a follower's fetch position, and where a follower truncates its log (`RaftLog`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.raft.log.metadata_log import (
    NOTHING,
    Diverging,
    FetchPosition,
    NeedsSnapshot,
    OffsetAndEpoch,
    SnapshotInfo,
    Valid,
    check_fetch_position,
    truncation_offset,
)
from klamm.testing.simulator.memory_log import MemoryLog


def log_of(epochs: list[int], start_offset: int = 0, snapshots: list[OffsetAndEpoch] | None = None) -> MemoryLog:
    log = MemoryLog(start_offset=start_offset)
    log.snapshot_infos = [SnapshotInfo(snapshot_id, 1, 0) for snapshot_id in snapshots or []]
    for epoch in epochs:
        log.append([b"%d" % log.end_offset], epoch, 0)
    return log


def end(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset, epoch)


WHOLE = log_of([1, 1, 1, 3, 3])
CUT = log_of([3, 3, 5], start_offset=10, snapshots=[end(10, 2), end(12, 3)])


@pytest.mark.parametrize(
    ("log", "offset", "last_epoch", "expected"),
    [
        (WHOLE, 0, 0, Valid()),
        (WHOLE, 5, 3, Valid()),
        (WHOLE, 4, 3, Valid()),
        (WHOLE, 3, 1, Valid()),
        (WHOLE, 4, 1, Diverging(end(3, 1))),  # epoch 1 ends earlier
        (WHOLE, 6, 3, Diverging(end(5, 3))),  # longer than the leader's
        (WHOLE, 4, 2, Diverging(end(3, 1))),  # an epoch that the leader never had
        (WHOLE, 4, 9, Diverging(end(5, 3))),  # later than all epochs of the leader
        (WHOLE, 2, 0, Diverging(end(0, 0))),  # earlier than all epochs of the leader
        (CUT, 13, 5, Valid()),
        (CUT, 10, 2, Valid()),  # exactly the snapshot at which the log begins
        (CUT, 10, 1, NeedsSnapshot(end(12, 3))),
        (CUT, 9, 2, NeedsSnapshot(end(12, 3))),
        (CUT, 12, 1, NeedsSnapshot(end(12, 3))),  # an epoch before the earliest snapshot's
        (CUT, 0, 0, NeedsSnapshot(end(12, 3))),
        (CUT, 13, 4, Diverging(end(12, 3))),
        (log_of([1], snapshots=[NOTHING]), 0, 0, Valid()),  # the snapshot 0-0 is never served
        (log_of([1], snapshots=[end(1, 1)]), 0, 0, NeedsSnapshot(end(1, 1))),  # although the log has all of it
    ],
)
def test_fetch_position(log: MemoryLog, offset: int, last_epoch: int, expected: FetchPosition) -> None:
    assert check_fetch_position(log, offset, last_epoch) == expected


@st.composite
def possible_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The epochs of two logs that can exist together: each epoch's leader started with some prefix of an older log."""
    logs: list[list[int]] = [[]]
    for epoch in range(1, draw(st.integers(1, 6))):
        base = draw(st.sampled_from(logs))
        prefix = base[: draw(st.integers(0, len(base)))]
        logs.append(prefix + [epoch] * draw(st.integers(1, 4)))
    own = draw(st.sampled_from(logs))
    return draw(st.sampled_from(logs)), own[: draw(st.integers(0, len(own)))]


@given(possible_logs())
def test_rounds_of_truncation_end_at_the_common_prefix(epochs: tuple[list[int], list[int]]) -> None:
    leader_epochs, own_epochs = epochs
    leader, own = log_of(leader_epochs), log_of(own_epochs)
    common = 0
    while common < min(len(leader_epochs), len(own_epochs)) and leader_epochs[common] == own_epochs[common]:
        common += 1
    for _ in range(len(own_epochs) + 1):
        position = check_fetch_position(leader, own.end_offset, own.last_epoch)
        if not isinstance(position, Diverging):
            break
        before = own.end_offset
        own.truncate_to(truncation_offset(own, position.end))
        assert own.end_offset < before, "each round gets nearer"
    assert isinstance(position, Valid)
    assert own.end_offset == common


@pytest.mark.parametrize(
    ("epochs", "diverging", "expected"),
    [
        ([1, 1, 2], end(0, 0), 0),
        ([1, 1, 2], end(9, 0), 3),
        ([1, 1, 2, 2], end(1, 1), 1),
        ([1, 1, 2, 2], end(3, 1), 2),
        ([1, 1, 4], end(3, 3), 2),
    ],
)
def test_truncation(epochs: list[int], diverging: OffsetAndEpoch, expected: int) -> None:
    assert truncation_offset(log_of(epochs), diverging) == expected


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [((3, 2), (3, 2), True), ((1, 3), (9, 2), True), ((9, 2), (1, 3), False), ((2, 2), (3, 2), False)],
)
def test_epochs_are_compared_before_offsets(mine: tuple[int, int], other: tuple[int, int], expected: bool) -> None:
    assert end(*mine).is_up_to_date_with(end(*other)) is expected
