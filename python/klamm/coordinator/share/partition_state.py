"""The state of one share partition, as the fold of its records (Kafka's `ShareGroupOffset` with the shard's maps)."""

from __future__ import annotations

from klamm.coordinator.share.batches import combine
from klamm.coordinator.share.records import Snapshot, Update
from klamm.protocol.messages.share_state import (
    NO_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    InitializedPartition,
    StateBatch,
    WrittenPartition,
)
from klamm.protocol.value import Value

_EPOCH_BEFORE_ANY: int = 0
"""The leader epoch of a state that was initialized, and the state epoch of one that begins with an update."""


class ShareState(Value):
    """The newest state, as in a snapshot, and further state from its records.

    1. `leader_epoch` and `state_epoch` are the highest of all records, and never fall before a tombstone; those of
       `newest` may be lower, because initializing sets its leader epoch back.
    2. `update_count` counts updates. It becomes 0 only with a snapshot that is written when it has reached the limit.
    """

    newest: Snapshot
    leader_epoch: int
    state_epoch: int
    update_count: int = 0
    snapshot_offset: int | None = None
    """The log offset of the last snapshot, before which no record of this partition is needed."""


def after_snapshot(before: ShareState | None, snapshot: Snapshot, offset: int, updates_per_snapshot: int) -> ShareState:
    """The state after a snapshot at this offset of the log."""
    if before is None:
        return ShareState(snapshot, snapshot.leader_epoch, snapshot.state_epoch, 0, offset)
    count = 0 if before.update_count >= updates_per_snapshot else before.update_count
    leader_epoch = max(before.leader_epoch, snapshot.leader_epoch)
    return ShareState(snapshot, leader_epoch, max(before.state_epoch, snapshot.state_epoch), count, offset)


def after_update(before: ShareState | None, update: Update) -> ShareState:
    """The state after an update. One without a snapshot before it, which pruning never leaves, is the state."""
    if before is None:
        values = update.snapshot_epoch, _EPOCH_BEFORE_ANY, update.leader_epoch, update.start_offset
        alone = Snapshot(*values, update.delivery_complete_count, update.batches, 0, 0)
        return ShareState(alone, update.leader_epoch, NO_EPOCH, 1)
    newest = before.newest
    start_offset = newest.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    merged = Snapshot(
        newest.snapshot_epoch,
        newest.state_epoch,
        newest.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
        start_offset,
        update.delivery_complete_count,
        combine(newest.batches, update.batches, start_offset),
        newest.create_ms,
        newest.write_ms,
    )
    leader_epoch = max(before.leader_epoch, update.leader_epoch)
    return ShareState(merged, leader_epoch, before.state_epoch, before.update_count + 1, before.snapshot_offset)


def initialized(before: ShareState | None, asked: InitializedPartition, now_ms: int) -> Snapshot:
    """The first snapshot of a state, or the one with which it starts again at another offset."""
    epoch = 0 if before is None else before.newest.snapshot_epoch + 1
    count = NO_COUNT if asked.start_offset == NO_START_OFFSET else 0
    return Snapshot(epoch, asked.state_epoch, _EPOCH_BEFORE_ANY, asked.start_offset, count, (), now_ms, now_ms)


def is_repeated(state: ShareState, asked: InitializedPartition) -> bool:
    """Whether the heartbeat that begins this state is repeated, or arrives late: the state may be in use.

    An operator who sets a start offset may do so again in the same epoch.
    """
    is_of_heartbeat = asked.state_epoch != NO_EPOCH and asked.start_offset == NO_START_OFFSET
    return is_of_heartbeat and asked.state_epoch == state.newest.state_epoch


def not_before(state: ShareState, asked: WrittenPartition) -> tuple[int, int]:
    """Start offset and delivery complete count after a write.

    In one state epoch the start offset never falls: a lower one is of a write that arrives late. What such a write says
    of later offsets does no harm: a merge prefers more deliveries, and final states.
    """
    newest = state.newest
    if NO_START_OFFSET < asked.start_offset < newest.start_offset:
        return newest.start_offset, newest.delivery_complete_count
    return asked.start_offset, asked.delivery_complete_count


def changed(
    before: ShareState,
    *,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: tuple[StateBatch, ...],
    updates_per_snapshot: int,
    now_ms: int,
) -> Snapshot | Update:
    """The record of a change: an update, or a snapshot once there are as many updates as the limit."""
    newest = before.newest
    if before.update_count < updates_per_snapshot:
        merged = combine((), batches, start_offset)
        return Update(newest.snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, merged)
    start = newest.start_offset if start_offset == NO_START_OFFSET else start_offset
    merged = combine(newest.batches, batches, start)
    epochs = newest.snapshot_epoch + 1, newest.state_epoch, leader_epoch
    return Snapshot(*epochs, start, delivery_complete_count, merged, now_ms, now_ms)


def is_cold(state: ShareState) -> bool:
    """Whether the last snapshot was written although nothing had changed."""
    return state.newest.create_ms != state.newest.write_ms


def cold_snapshot(state: ShareState, now_ms: int) -> Snapshot:
    """A snapshot of a state that was not written for a while, so that the records before it can be pruned."""
    newest = state.newest
    return Snapshot(
        newest.snapshot_epoch + 1,
        newest.state_epoch,
        newest.leader_epoch,
        newest.start_offset,
        newest.delivery_complete_count,
        newest.batches,
        newest.create_ms,
        now_ms,
    )
