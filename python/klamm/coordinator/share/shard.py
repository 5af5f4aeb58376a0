"""One partition of `__share_group_state` as a state machine: the share partitions that hash to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.log import LoadedRecord, RecordError
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers
from klamm.coordinator.share.config import ShareConfig
from klamm.coordinator.share.counts import ShareCounts
from klamm.coordinator.share.partition_state import (
    ShareState,
    after_snapshot,
    after_update,
    changed,
    cold_snapshot,
    initialized,
    is_cold,
    is_repeated,
    not_before,
)
from klamm.coordinator.share.records import (
    GROUP_ID_BYTES_MAX,
    SNAPSHOT,
    UPDATE,
    Snapshot,
    Update,
    decode_key,
    decode_snapshot,
    decode_update,
    share_key,
    snapshot_value,
    update_value,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.share_state import (
    NO_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    InitializedPartition,
    PartitionError,
    PartitionState,
    PartitionSummary,
    ReadPartition,
    SharePartitionKey,
    WrittenPartition,
    batch_messages,
    batches_of,
)
from klamm.protocol.value import Value

log: Final = logging.getLogger("klamm.coordinator")

PRUNE_TIMER: Final = "prune"
COLD_TIMER: Final = "cold"
MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
}
NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
REVERSED_BATCH: Final = "The last offset of a state batch cannot be before its first one."

CAUSES: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
}


class Operation(NamedTuple):
    """The operation on a state, for messages, and the class of its results."""

    name: str
    result: Callable[[int, ErrorCode, str | None], Any]

    def refused(self, partition: int, code: ErrorCode) -> Any:
        """The result if the coordinator cannot do it now."""
        return self.result(partition, code, f"Unable to {self.name}: {CAUSES.get(code, code.name)}")


INITIALIZE: Final = Operation("initialize share group state", PartitionError)
READ: Final = Operation("read share group state", PartitionState)
WRITE: Final = Operation("write share group state", PartitionError)
DELETE: Final = Operation("delete share group state", PartitionError)
SUMMARY: Final = Operation("read share group state summary", PartitionSummary)


class Prune(Value):
    """The effect of the prune timer: no record before this offset, where one with this key is, is needed any more."""

    offset: int
    key: bytes


ShareEffects = list[Reply | Prune]


@dataclass(slots=True, eq=False)
class Overwritten:
    """The values that a write overwrites: the earlier states, None where there was none, and the next offset."""

    next_offset: int
    last_snapshot: tuple[int, bytes] | None
    states: dict[SharePartitionKey, ShareState | None] = field(default_factory=dict)


class ShareShard:
    """The share coordinator of one partition.

    The state changes with each write at once, by the function that also replays records. Each response waits until
    everything written before it is committed: also a read, and an error, may follow from a state that is not yet.

    `has_partition` returns whether the cluster's metadata has a partition of a topic id; `is_enabled` whether
    share.version is at least 1, without which nothing is pruned and no cold snapshot written.
    """

    def __init__(
        self,
        config: ShareConfig,
        has_partition: Callable[[bytes, int], bool],
        is_enabled: Callable[[], bool],
        counts: ShareCounts | None = None,
    ) -> None:
        self._config: Final = config
        self._counts: Final = counts or ShareCounts()
        self._has_partition, self._is_enabled = has_partition, is_enabled
        self._states: dict[SharePartitionKey, ShareState] = {}
        self._next_offset = 0
        """The log offset of the next record: this coordinator alone appends to its partition."""
        self._last_snapshot: tuple[int, bytes] | None = None
        """Offset and key of the newest snapshot or tombstone."""
        self.pipeline: Final[Pipeline[Overwritten, Prune]] = Pipeline(
            config.write_timeout_ms,
            config.batch_bytes_max,
            lambda: Overwritten(self._next_offset, self._last_snapshot),
        )
        self.timers: Final[Timers[str]] = Timers()

    # For the runtime

    def replay(self, record: LoadedRecord) -> None:
        """Apply a record of the log; those of unknown types are skipped, as in Kafka."""
        self._next_offset = record.offset
        found = None if record.is_control else decode_key(record.key)
        if found is not None:
            record_type, key = found
            self._apply(key, _decoded(record_type, record.value))
        self._next_offset = record.offset + 1

    def rollback(self, snapshot: Overwritten) -> None:
        """An append failed: the states are those before it."""
        for key, before in snapshot.states.items():
            if before is None:
                self._states.pop(key, None)
            else:
                self._states[key] = before
        self._next_offset, self._last_snapshot = snapshot.next_offset, snapshot.last_snapshot

    def on_loaded(self, now_ms: int) -> ShareEffects:
        """Start the timers."""
        self.timers.schedule(PRUNE_TIMER, now_ms + self._config.prune_interval_ms)
        self.timers.schedule(COLD_TIMER, now_ms + self._config.cold_snapshot_interval_ms)
        return self.pipeline.take_effects()

    def on_unloaded(self, now_ms: int) -> ShareEffects:
        """The partition is no longer led here."""
        return self.pipeline.take_effects()

    def on_pause(self, now_ms: int, pause_ms: int) -> ShareEffects:
        """The process did not run: the timers are already extended."""
        return self.pipeline.take_effects()

    def on_timer(self, now_ms: int, key: str) -> ShareEffects:
        """Prune the log, or write snapshots of states that were not written for a while."""
        if key == PRUNE_TIMER:
            self.timers.schedule(key, now_ms + self._config.prune_interval_ms)
            if self._is_enabled():
                self._prune(now_ms)
        else:
            self.timers.schedule(key, now_ms + self._config.cold_snapshot_interval_ms)
            if self._is_enabled():
                self._write_cold_snapshots(now_ms)
        return self.pipeline.take_effects()

    # Requests, each of one share partition

    def on_initialize(
        self, now_ms: int, ticket: Ticket, key: SharePartitionKey, asked: InitializedPartition
    ) -> ShareEffects:
        """InitializeShareGroupState (83): a PartitionError. A repeated one does not begin the state again."""

        def work() -> PartitionError:
            state = self._states.get(key)
            if state is not None and asked.state_epoch != NO_EPOCH and state.state_epoch > asked.state_epoch:
                raise _refused(ErrorCode.FENCED_STATE_EPOCH)
            self._check_exists(key)
            if len(key.group_id.encode()) > GROUP_ID_BYTES_MAX:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group id is too long for a record.")
            if state is None or not is_repeated(state, asked):
                self._write(key, initialized(state, asked, now_ms))
            return PartitionError(key.partition)

        return self._answer(now_ms, ticket, key, INITIALIZE, work)

    def on_read(self, now_ms: int, ticket: Ticket, key: SharePartitionKey, asked: ReadPartition) -> ShareEffects:
        """ReadShareGroupState (84): a PartitionState. A newer leader epoch is written."""

        def work() -> PartitionState:
            state = self._states.get(key)
            if state is None:
                raise _invalid("Read operation on uninitialized share partition not allowed.")
            if asked.leader_epoch != NO_EPOCH and state.leader_epoch > asked.leader_epoch:
                raise _refused(ErrorCode.FENCED_LEADER_EPOCH)
            self._check_exists(key)
            if asked.leader_epoch not in (NO_EPOCH, state.leader_epoch):
                self._change(now_ms, key, state, asked.leader_epoch)
            newest = state.newest
            batches = batch_messages(newest.batches)
            return PartitionState(key.partition, ErrorCode.NONE, None, newest.state_epoch, newest.start_offset, batches)

        return self._answer(now_ms, ticket, key, READ, work)

    def _change(self, now_ms: int, key: SharePartitionKey, state: ShareState, leader_epoch: int) -> None:
        newest = state.newest
        record = changed(
            state,
            leader_epoch=leader_epoch,
            start_offset=newest.start_offset,
            delivery_complete_count=newest.delivery_complete_count,
            batches=(),
            updates_per_snapshot=self._config.updates_per_snapshot,
            now_ms=now_ms,
        )
        self._write(key, record)

    def on_write(self, now_ms: int, ticket: Ticket, key: SharePartitionKey, asked: WrittenPartition) -> ShareEffects:
        """WriteShareGroupState (85): a PartitionError. The epochs stay as they are; the start offset never falls."""

        def work() -> PartitionError:
            state = self._states.get(key)
            if state is None:
                raise _invalid("Write operation on uninitialized share partition not allowed.")
            if asked.leader_epoch != NO_EPOCH and state.leader_epoch > asked.leader_epoch:
                raise _refused(ErrorCode.FENCED_LEADER_EPOCH)
            if asked.state_epoch != NO_EPOCH and state.state_epoch > asked.state_epoch:
                raise _refused(ErrorCode.FENCED_STATE_EPOCH)
            self._check_exists(key)
            batches = batches_of(asked.state_batches)
            # Kafka does not check this, and does not return from merging such a batch.
            if any(batch.last_offset < batch.first_offset for batch in batches):
                raise _invalid(REVERSED_BATCH)
            start_offset, count = not_before(state, asked)
            record = changed(
                state,
                leader_epoch=state.newest.leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=count,
                batches=batches,
                updates_per_snapshot=self._config.updates_per_snapshot,
                now_ms=now_ms,
            )
            self._write(key, record)
            return PartitionError(key.partition)

        return self._answer(now_ms, ticket, key, WRITE, work)

    def on_delete(self, now_ms: int, ticket: Ticket, key: SharePartitionKey) -> ShareEffects:
        """DeleteShareGroupState (86): a PartitionError."""

        def work() -> PartitionError:
            self._check_exists(key)
            if key in self._states:
                self._write(key, None)
            return PartitionError(key.partition)

        return self._answer(now_ms, ticket, key, DELETE, work)

    def on_summary(self, now_ms: int, ticket: Ticket, key: SharePartitionKey) -> ShareEffects:
        """ReadShareGroupStateSummary (87): a PartitionSummary."""

        def work() -> PartitionSummary:
            self._check_exists(key)
            state = self._states.get(key)
            if state is None:
                return PartitionSummary(key.partition, start_offset=NO_START_OFFSET, delivery_complete_count=NO_COUNT)
            newest = state.newest
            epochs = newest.state_epoch, newest.leader_epoch
            return PartitionSummary(
                key.partition, ErrorCode.NONE, None, *epochs, newest.start_offset, newest.delivery_complete_count
            )

        return self._answer(now_ms, ticket, key, SUMMARY, work)

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> ShareEffects:
        """Delete the states of deleted topics; no response."""
        for key in [key for key in self._states if key.topic_id in topic_ids]:
            self._write(key, None)
        return self.pipeline.take_effects()

    # Reads, for tests and metrics

    @property
    def states(self) -> dict[SharePartitionKey, ShareState]:
        """The newest states; do not modify."""
        return self._states

    @property
    def redundant_before(self) -> tuple[int, bytes] | None:
        """The smallest offset of a record that is needed, with its key; before it nothing is (Kafka's offsets manager).

        A deleted partition needs no record. While there is no other, its tombstone is kept.
        """
        needed = []
        for key, state in self._states.items():
            if state.snapshot_offset is None:
                return None  # no record says where its state begins
            needed.append((state.snapshot_offset, key))
        if not needed:
            return self._last_snapshot
        offset, key = min(needed)
        return offset, share_key(SNAPSHOT, key)

    # Steps

    def _answer(
        self, now_ms: int, ticket: Ticket, key: SharePartitionKey, operation: Operation, work: Callable[[], Any]
    ) -> ShareEffects:
        """Respond with the result of `work`, once everything before it is committed."""
        try:
            if key.partition < 0:
                raise _invalid(NEGATIVE_PARTITION)
            response = work()
        except KafkaError as error:
            response = operation.result(key.partition, error.code, error.message)

        def on_error(partition: int, error: ErrorCode) -> Any:
            return operation.refused(partition, coordinator_error(error))

        self.pipeline.reply_when_committed(now_ms, ticket, response, key.partition, on_error)
        return self.pipeline.take_effects()

    def _check_exists(self, key: SharePartitionKey) -> None:
        if not self._has_partition(key.topic_id, key.partition):
            raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _write(self, key: SharePartitionKey, value: Snapshot | Update | None) -> None:
        """Write a record, None for a tombstone, and apply it. Raises UNKNOWN_SERVER_ERROR if it is too large."""
        record_type, encoded = SNAPSHOT, None
        if isinstance(value, Update):
            record_type, encoded = UPDATE, update_value(value)
        elif value is not None:
            encoded = snapshot_value(value)
        overwritten = self.pipeline.write([(share_key(record_type, key), encoded)])
        if overwritten is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The record of the share partition's state is too large.")
        overwritten.states.setdefault(key, self._states.get(key))
        self._apply(key, value)
        self._next_offset += 1
        self._counts.writes += 1

    def _apply(self, key: SharePartitionKey, value: Snapshot | Update | None) -> None:
        """Apply the record at the next offset."""
        before, offset, limit = self._states.get(key), self._next_offset, self._config.updates_per_snapshot
        if isinstance(value, Update):
            self._states[key] = after_update(before, value)
            return
        self._last_snapshot = offset, share_key(SNAPSHOT, key)
        if value is None:
            self._states.pop(key, None)
        else:
            self._states[key] = after_snapshot(before, value, offset, limit)

    def _prune(self, now_ms: int) -> None:
        """Find redundant records, and prune them once everything that makes them redundant is committed."""
        found = self.redundant_before
        if found is None or found[0] <= 0:
            return
        prune = Prune(*found)
        if self.pipeline.is_idle:
            self.pipeline.add(prune)
            return

        def done(_: int, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.pipeline.add(prune)

        self.pipeline.call_when_committed(now_ms, done)

    def _write_cold_snapshots(self, now_ms: int) -> None:
        if all(map(is_cold, self._states.values())):
            return  # nothing was written since the last ones: the log does not grow
        interval_ms = self._config.cold_snapshot_interval_ms
        for key, state in list(self._states.items()):
            if now_ms - state.newest.write_ms >= interval_ms:
                try:
                    self._write(key, cold_snapshot(state, now_ms))
                except KafkaError as error:  # too large for a batch: its updates stay in the log
                    log.warning("no snapshot of the state of %s: %s", key.coordinator_key(), error)


def _decoded(record_type: int, value: bytes | None) -> Snapshot | Update | None:
    if record_type == SNAPSHOT:
        return None if value is None else decode_snapshot(value)
    if value is None:
        raise RecordError("an update of the state of a share partition without a value")
    return decode_update(value)


def _refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, MESSAGES[code])


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
