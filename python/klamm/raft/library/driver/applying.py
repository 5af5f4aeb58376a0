"""Applies committed records to the state, notifies waiters, and writes and loads snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm._engine.quorum import StorageError, read_values_snapshot, write_values_snapshot
from klamm.raft.library.driver.directory_files import wall_clock_ms
from klamm.raft.library.sessions import Applied, ReplicatedState, StateDamagedError
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
from klamm.raft.log.native_log import NativeMetadataLog
from klamm.raft.ports import StateFailedError
from klamm.raft.replication.waiters import CommitWaiters
from klamm.records import RecordBatch, batches

SLICE_BYTES: Final = 1 << 20


class Applier:
    """Applies a log to a state. Not for threads."""

    def __init__(
        self,
        log: NativeMetadataLog,
        state: ReplicatedState,
        *,
        on_applied: Callable[[Applied], None],
        on_progress: Callable[[int], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`on_applied` receives each command, `on_progress` the applied offset after one or more of them."""
        self._log, self._state = log, state
        self._on_applied, self._on_progress, self._on_fault = on_applied, on_progress, on_fault
        self._loop = asyncio.get_running_loop()
        self._target = 0
        self._loaded: tuple[OffsetAndEpoch, list[bytes]] | None = None  # and not installed yet
        self._waiters = CommitWaiters()
        self._is_scheduled = False
        self._last_timestamp_ms = 0
        self._fault: Exception | None = None
        self.applied = 0
        """The state holds everything below this offset of the log."""

    def restore(self, snapshot_id: OffsetAndEpoch) -> None:
        """Load that snapshot. Blocks. Raises MetadataLogError, which names the file."""
        path = self._log.native.snapshot_path(*snapshot_id)
        try:
            values = read_values_snapshot(path)
            self._state.restore(values)
        except (StorageError, StateDamagedError) as error:
            raise MetadataLogError(f"snapshot {path} cannot be used: {error}") from None
        self.applied = self._target = snapshot_id.offset

    async def load(self, snapshot_id: OffsetAndEpoch) -> None:
        """Read the values of the snapshot that was received, in a thread. Raises StorageError."""
        path = self._log.native.received_snapshot_path()
        if path is None:
            raise FileNotFoundError(f"snapshot {snapshot_id} is no longer being received")
        self._loaded = snapshot_id, await asyncio.to_thread(read_values_snapshot, path)

    def install(self, snapshot_id: OffsetAndEpoch) -> None:
        """Continue from the snapshot that was loaded. Raises MetadataLogError, which names the file."""
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded[0] != snapshot_id:
            raise StateFailedError(f"snapshot {snapshot_id} is installed, and {loaded and loaded[0]} was loaded")
        try:
            self._state.restore(loaded[1])
        except StateDamagedError as error:
            path = self._log.native.snapshot_path(*snapshot_id)
            raise MetadataLogError(f"snapshot {path} cannot be used: {error}") from None
        except Exception as error:  # any exception of the program's state machine
            raise StateFailedError(f"snapshot {snapshot_id} was restored in part: {error!r}") from error
        self.applied = snapshot_id.offset
        self._target = max(self._target, snapshot_id.offset)
        self._waiters.complete_below(self.applied)
        self._on_progress(self.applied)

    def commit(self, high_watermark: int) -> None:
        """Apply committed entries: a slice now, the rest in later turns, so that a long log does not block the loop."""
        self._target = max(self._target, high_watermark)
        if not self._is_scheduled:
            self._apply_slice()

    def _apply_later(self) -> None:
        self._is_scheduled = False
        try:
            self._apply_slice()
        except Exception as error:  # it stops the replica, as an exception of the first slice does
            self._on_fault(error)

    def _apply_slice(self) -> None:
        """Apply the next slice of committed entries. Raises MetadataLogError, StateFailedError."""
        try:
            self._apply_next()
        except MetadataLogError:
            raise
        except Exception as error:  # a batch that was applied in part must not be applied again
            raise StateFailedError(f"the state after offset {self.applied} is unknown: {error!r}") from error

    def _apply_next(self) -> None:
        if self.applied >= self._target or self._fault is not None:
            return
        end = self.applied
        for batch in batches(self._log.read(end, SLICE_BYTES)):
            if batch.base_offset >= self._target:
                break
            end = min(batch.last_offset + 1, self._target)
            if not batch.is_control:
                self._apply_batch(batch, end)
        if end <= self.applied:
            raise MetadataLogError(f"the log holds nothing whole at {end}, and {self._target} is committed")
        self.applied = end
        self._waiters.complete_below(end)
        self._on_progress(end)
        if self.applied < self._target and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._apply_later)

    def _apply_batch(self, batch: RecordBatch, end: int) -> None:
        offset, start, apply = self.applied, self.applied, self._state.apply
        done: list[Applied | None] = []
        try:
            for record in batch.records():
                offset = record.offset
                if start <= offset < end:
                    done.append(apply(record.value or b""))
        except Exception as error:  # any exception of the program's state machine
            name = type(self._state.machine).__name__
            raise MetadataLogError(
                f"{name}.apply failed at offset {offset} with {type(error).__name__}: {error}. The state may differ "
                "from the other replicas' from here on. Mend it, raise CommandRefusedError for what is to be "
                "refused, and start again: the log is replayed"
            ) from error
        self._last_timestamp_ms = batch.max_timestamp_ms
        for applied in done:
            if applied is not None:
                self._on_applied(applied)

    def when_applied(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the state holds everything below `offset`."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._fault is not None:
            future.set_exception(self._fault)
        elif offset <= self.applied:
            future.set_result(None)
        else:
            self._waiters.add(offset - 1, future)
        return future

    def hold_snapshot(self, snapshot_id: OffsetAndEpoch, head: Sequence[tuple[int, bytes]]) -> Awaitable[None]:
        """Capture the state at that offset; the returned function writes it after raft's own records."""
        while self.applied < snapshot_id.offset:
            self._apply_slice()
        return self._write(snapshot_id, self._state.hold(), head, self._last_timestamp_ms)

    async def _write(
        self,
        snapshot_id: OffsetAndEpoch,
        values_of: Callable[[], list[bytes]],
        control_records: Sequence[tuple[int, bytes]],
        last_timestamp_ms: int,
    ) -> None:
        native = self._log.native

        def write() -> None:
            write_values_snapshot(
                native.snapshot_path(*snapshot_id),
                values_of(),
                epoch=snapshot_id.epoch,
                last_contained_log_timestamp_ms=last_timestamp_ms,
                now_ms=wall_clock_ms(),
                control_records=control_records,
            )

        await asyncio.to_thread(write)
        native.snapshot_finished(*snapshot_id)

    def stop(self, fault: Exception) -> None:
        """Stop applying."""
        self._fault = fault
        self._waiters.fail_all(fault)
