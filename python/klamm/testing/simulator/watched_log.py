"""The memory log under a driver: reports each change, before which the process may end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.testing.simulator.memory_log import MemoryLog


class Watcher(Protocol):
    """Receives the changes of a log."""

    def before_change(self) -> None:
        """Called before a change. Raises CrashedError if the process ends before it."""

    def extend_chains(self) -> None:
        """The log has grown."""

    def cut_chains(self, offset: int) -> None:
        """The log was truncated."""

    def begin_chains_with_snapshot(self) -> None:
        """The log starts and ends at a snapshot."""

    def damaged(self, data: bytes) -> bytes:
        """The bytes of a slice that the disk stores."""


class WatchedLog(MemoryLog):
    """Reports every change that the driver makes."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """See `MemoryLog.append`."""
        self._watcher.before_change()
        last_offset = super().append(records, epoch, timestamp_ms)
        self._watcher.extend_chains()
        return last_offset

    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """See `MemoryLog.append_control`."""
        self._watcher.before_change()
        last_offset = super().append_control(records, epoch, timestamp_ms)
        self._watcher.extend_chains()
        return last_offset

    def append_fetched(self, batches: bytes, max_epoch: int) -> int:
        """See `MemoryLog.append_fetched`."""
        self._watcher.before_change()
        try:
            return super().append_fetched(batches, max_epoch)
        finally:  # batches before a refused one stay appended
            self._watcher.extend_chains()

    def append_snapshot_slice(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """See `MemoryLog.append_snapshot_slice`."""
        self._watcher.before_change()
        super().append_snapshot_slice(snapshot_id, position, self._watcher.damaged(data))

    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """See `MemoryLog.check_received_snapshot`."""
        self._watcher.before_change()
        super().check_received_snapshot(on_done)

    def drop_received_snapshot(self) -> None:
        """See `MemoryLog.drop_received_snapshot`."""
        self._watcher.before_change()
        super().drop_received_snapshot()

    def install_received_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """In two halves: after the first, the next start completes it."""
        self._watcher.before_change()
        self.finish_received_snapshot(snapshot_id)
        self._watcher.before_change()
        self.truncate_to_latest_snapshot()
        self._watcher.begin_chains_with_snapshot()

    def truncate_to(self, offset: int) -> None:
        """See `MemoryLog.truncate_to`."""
        self._watcher.before_change()
        super().truncate_to(offset)
        self._watcher.cut_chains(offset)
