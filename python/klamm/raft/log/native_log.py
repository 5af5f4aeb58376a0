"""The engine's metadata log, with the interface that raft's driver uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from klamm._engine.quorum import MetadataLog, StorageError
from klamm.raft.log.metadata_log import ControlRecord, MetadataLogError, OffsetAndEpoch, SnapshotInfo


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise MetadataLogError(str(error)) from None


class NativeMetadataLog:
    """Implements `klamm.raft.log.metadata_log.MetadataLog` over `_engine.quorum.MetadataLog`."""

    def __init__(self, native: MetadataLog, wall_clock_ms: Callable[[], int]) -> None:
        """`wall_clock_ms` returns milliseconds since 1970."""
        self.native, self._wall_clock_ms = native, wall_clock_ms
        self._on_flushed: Callable[[int, str | None], None] = lambda offset, error: None

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self.native.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.native.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        return self.native.flushed_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the latest snapshot."""
        return self.native.last_epoch

    @property
    def proven_end(self) -> OffsetAndEpoch:
        """A lower bound of what was durable in the log."""
        return OffsetAndEpoch(*self.native.proven_end)

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments."""
        return self.native.size_bytes

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the records of `epoch` end in this log."""
        return OffsetAndEpoch(*self.native.end_offset_for_epoch(epoch))

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        return self.native.epoch_at(offset)

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest finished snapshot."""
        found = self.native.snapshots()
        return OffsetAndEpoch(found[0][0], found[0][1]) if found else None

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest finished snapshot."""
        found = self.native.snapshots()
        return OffsetAndEpoch(found[-1][0], found[-1][1]) if found else None

    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """Append record values as one batch; the last offset."""
        with _on_disk():
            return self.native.append(records, epoch, timestamp_ms)

    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """Append control records as one batch; the last offset."""
        with _on_disk():
            return self.native.append_control(records, epoch, timestamp_ms)

    def append_fetched(self, batches: bytes, max_epoch: int) -> int:
        """Append the leader's batches as they are; the new end offset."""
        with _on_disk():
            return self.native.append_fetched(batches, max_epoch, self._wall_clock_ms())

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        """Flush what is appended so far; `on_flush_end` calls `on_done`."""
        self._on_flushed = on_done
        self.native.start_flush()

    @property
    def flush_fd(self) -> int | None:
        """Readable when a flush has ended."""
        return self.native.flush_fd

    def on_flush_end(self) -> None:
        """Report the flush that has ended, if any."""
        for flushed_offset, error in self.native.take_flushed():
            self._on_flushed(flushed_offset, error)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Complete batches, beginning with the batch that contains `offset`."""
        with _on_disk():
            return self.native.read(offset, max_bytes)

    def control_records(self, start: int = -1) -> Sequence[ControlRecord]:
        """Those of the latest snapshot and the log at or above `start`."""
        with _on_disk():
            return [ControlRecord(*row) for row in self.native.control_records(start)]

    def truncate_to(self, offset: int) -> None:
        """Drop every record at or above `offset`."""
        with _on_disk():
            self.native.truncate_to(offset, self._wall_clock_ms())

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches at or above `offset`."""
        with _on_disk():
            return self.native.bytes_from(offset)

    def snapshots(self) -> Sequence[SnapshotInfo]:
        """The finished snapshots, oldest first."""
        return [
            SnapshotInfo(OffsetAndEpoch(end_offset, epoch), size_bytes, timestamp_ms)
            for end_offset, epoch, size_bytes, timestamp_ms in self.native.snapshots()
        ]

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The bytes of that finished snapshot; None when there is none."""
        return next((info.size_bytes for info in self.snapshots() if info.id == snapshot_id), None)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes | None:
        """A slice of a snapshot; None when there is no such snapshot."""
        with _on_disk():
            return self.native.read_snapshot(*snapshot_id, position, max_bytes)

    def append_snapshot_slice(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a slice of the leader's snapshot."""
        with _on_disk():
            self.native.append_snapshot_slice(*snapshot_id, position, data)

    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """Check the snapshot that was received; `on_done` runs on a thread of the engine."""
        with _on_disk():
            self.native.check_received_snapshot(on_done)

    def install_received_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Replace the log by the snapshot that was received."""
        with _on_disk():
            self.native.install_received_snapshot(*snapshot_id, self._wall_clock_ms())

    def drop_received_snapshot(self) -> None:
        """Drop the received part of a snapshot."""
        self.native.drop_received_snapshot()

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Delete the log below that snapshot."""
        with _on_disk():
            return self.native.delete_before(snapshot_id.offset, snapshot_id.epoch, self._wall_clock_ms())

    def close(self) -> None:
        """Close cleanly."""
        self.native.close()
