"""A metadata log in memory with a page cache: implements `klamm.raft.log.metadata_log.MetadataLog` for tests."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from klamm.raft.log.metadata_log import NOTHING, ControlRecord, OffsetAndEpoch, SnapshotInfo
from klamm.testing.simulator import memory_snapshot

_BATCH: Final = Struct(">qii")  # base offset, epoch, record count
_RECORD: Final = Struct(">hi")  # control type or DATA, size
DATA: Final = -1
_VALUE: Final[Callable[[tuple[object, ...]], bytes]] = itemgetter(3)  # of a record


class Record(NamedTuple):
    """One record: its epoch, the offset of its batch, its control type (or DATA) and value."""

    epoch: int
    batch_offset: int
    type: int
    value: bytes


@dataclass(slots=True)
class ReceivedSnapshot:
    """A snapshot that is being received; it is lost with the process."""

    id: OffsetAndEpoch
    data: bytes = b""
    is_checked: bool = False


@dataclass(slots=True)
class MemoryLog:
    """Invariant: start <= flushed <= end; `epochs` has (epoch, start offset), ascending in both.

    `start_flush` and `check_received_snapshot` only record the request; `finish_flush` and `finish_check` carry it out
    when the test calls them. Finished snapshots are `memory_snapshot` files.
    """

    records: list[Record] = field(default_factory=list)
    start_offset: int = 0
    flushed_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    snapshot_infos: list[SnapshotInfo] = field(default_factory=list)
    snapshot_control: list[ControlRecord] = field(default_factory=list)  # of the latest snapshot
    snapshot_bytes: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    flushing_to: int | None = None
    on_flush_done: Callable[[int, str | None], None] | None = None
    batch_bytes_max: int = 8 << 20
    received: ReceivedSnapshot | None = None
    checks: list[tuple[ReceivedSnapshot, Callable[[str | None], None]]] = field(default_factory=list)
    control_offsets: list[int] = field(default_factory=list)  # of the control records among `records`
    proven_end: OffsetAndEpoch = NOTHING  # since it was last damaged
    _sizes: list[int] = field(default_factory=lambda: [0])  # the values' bytes before each record, and before the end
    _encoded: dict[int, tuple[bytes, int]] = field(default_factory=dict)  # base offset -> batch as read, its end

    # LogView

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.start_offset + len(self.records)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the latest snapshot, or 0."""
        if self.records:
            return self.records[-1].epoch
        return self.snapshot_infos[-1].id.epoch if self.snapshot_infos else 0

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest snapshot."""
        return self.snapshot_infos[0].id if self.snapshot_infos else None

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        return self.snapshot_infos[-1].id if self.snapshot_infos else None

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `LogView.end_offset_for_epoch`."""
        position = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if position == len(self.epochs):
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        end = OffsetAndEpoch(self.epochs[position][1], self.epochs[position - 1][0] if position else epoch)
        earliest = self.earliest_snapshot_id
        return earliest if earliest is not None and end == OffsetAndEpoch(earliest.offset, epoch) else end

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        if offset >= self.start_offset:
            return self.records[offset - self.start_offset].epoch
        return next(info.id.epoch for info in self.snapshot_infos if info.id.offset > offset)

    # Appending

    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """Append a batch of data records."""
        return self._append_values(epoch, [(DATA, value) for value in records])

    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """Append a batch of control records."""
        return self._append_values(epoch, records)

    def append_fetched(self, batches: bytes, max_epoch: int) -> int:
        """Append batches that `read` of another log returned."""
        for records in decode(batches):
            epoch, offset, _, _ = records[0]
            if offset != self.end_offset or not self.last_epoch <= epoch <= max_epoch:
                raise ValueError(f"batch {offset} of epoch {epoch} does not follow {self.end_offset}")
            self._append_batch(epoch, offset, records)
        return self.end_offset

    def _append_values(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> int:
        if sum(len(value) for _, value in records) > self.batch_bytes_max:
            raise ValueError(f"a batch of more than {self.batch_bytes_max} bytes")
        if epoch < self.last_epoch:
            raise ValueError(f"epoch {epoch} after {self.last_epoch}")
        offset = self.end_offset
        return self._append_batch(epoch, offset, [Record(epoch, offset, kind, value) for kind, value in records])

    def _append_batch(self, epoch: int, offset: int, records: Sequence[Record]) -> int:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))
        self.control_offsets += [at for at, record in enumerate(records, offset) if record.type != DATA]
        self.records.extend(records)
        self._sizes += accumulate(map(len, map(_VALUE, records)), initial=self._sizes.pop())
        return self.end_offset - 1

    # Flushing, reading, truncating

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        """Record that a flush is requested."""
        if self.flushing_to is not None:
            raise RuntimeError("one flush at a time")
        self.flushing_to, self.on_flush_done = self.end_offset, on_done

    @property
    def flush_fd(self) -> int | None:
        """None: the code that ends the flush calls the callback."""
        return None

    def on_flush_end(self) -> None:
        """No effect: see `finish_flush`."""

    def finish_flush(self, error: str | None = None) -> None:
        """End the flush in progress, successfully or with an error."""
        on_done, target = self.on_flush_done, self.flushing_to
        if on_done is None or target is None:
            raise RuntimeError("no flush runs")
        self.on_flush_done = self.flushing_to = None
        if error is None:
            self.flushed_offset = max(self.flushed_offset, min(target, self.end_offset))
        on_done(self.flushed_offset, error)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Complete batches from `offset` on, at least one. Raises ValueError if there is none."""
        if not self.start_offset <= offset < self.end_offset:
            raise ValueError(f"offset {offset} is not in {self.start_offset} to {self.end_offset}")
        chunks: list[bytes] = []
        size, position = 0, self.records[offset - self.start_offset].batch_offset
        while position < self.end_offset:
            batch = self._encoded.get(position)
            if batch is None:
                batch = self._encoded[position] = self._encode_batch(position)
            if chunks and size + len(batch[0]) > max_bytes:
                break
            chunks.append(batch[0])
            size += len(batch[0])
            position = batch[1]
        return b"".join(chunks)

    def _encode_batch(self, offset: int) -> tuple[bytes, int]:
        end = offset
        parts = []
        while end < self.end_offset and self.records[end - self.start_offset].batch_offset == offset:
            record = self.records[end - self.start_offset]
            parts.append(_RECORD.pack(record.type, len(record.value)) + record.value)
            end += 1
        epoch = self.records[offset - self.start_offset].epoch
        return _BATCH.pack(offset, epoch, end - offset) + b"".join(parts), end

    def control_records(self, start: int = -1) -> Sequence[ControlRecord]:
        """The control records of the snapshot and the log."""
        found = []
        for offset in self.control_offsets[bisect_left(self.control_offsets, start) :]:
            _, _, kind, value = self.records[offset - self.start_offset]
            found.append(ControlRecord(offset, kind, value))
        latest = self.latest_snapshot_id
        if start >= 0 and (latest is None or start >= latest.offset):
            return found  # the records of a snapshot precede its end
        found += [record for record in self._snapshot_control() if record.offset >= start]
        return sorted(found, key=lambda record: record.offset)

    def _snapshot_control(self) -> list[ControlRecord]:
        latest = self.latest_snapshot_id
        data = self.snapshot_bytes.get(latest) if latest is not None else None
        if latest is None or not data:
            return self.snapshot_control
        content = memory_snapshot.decode_unchecked(data)
        return [ControlRecord(latest.offset - 1, kind, value) for kind, value in content.control_records]

    def truncate_to(self, offset: int) -> None:
        """Drop records from `offset` on."""
        del self.records[max(offset - self.start_offset, 0) :]
        del self._sizes[len(self.records) + 1 :]
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        del self.control_offsets[bisect_left(self.control_offsets, offset) :]
        self._encoded = {base: batch for base, batch in self._encoded.items() if batch[1] <= offset}
        self.flushed_offset = min(self.flushed_offset, offset)
        if offset < self.proven_end.offset:
            self.proven_end = OffsetAndEpoch(offset, self.last_epoch)
        self._cut_flush(offset)

    def _cut_flush(self, offset: int) -> None:
        """A flush in progress does not cover records that are appended in place of truncated ones."""
        if self.flushing_to is not None:
            self.flushing_to = min(self.flushing_to, offset)

    def bytes_from(self, offset: int) -> int:
        """The values' bytes from `offset` on."""
        at = min(max(offset - self.start_offset, 0), len(self.records))
        return self._sizes[-1] - self._sizes[at]

    @property
    def size_bytes(self) -> int:
        """The values' bytes."""
        return self.bytes_from(self.start_offset)

    # Snapshots

    def snapshots(self) -> Sequence[SnapshotInfo]:
        """The snapshots, oldest first."""
        return self.snapshot_infos

    def add_snapshot(self, info: SnapshotInfo, data: bytes = b"") -> None:
        """Add a snapshot that was written."""
        self.snapshot_infos.append(info)
        self.snapshot_infos.sort(key=lambda snapshot: snapshot.id.offset)
        self.snapshot_bytes[info.id] = data

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The bytes of a snapshot."""
        return next((info.size_bytes for info in self.snapshot_infos if info.id == snapshot_id), None)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes | None:
        """A slice of a snapshot."""
        if self.snapshot_size(snapshot_id) is None:
            return None
        return self.snapshot_bytes[snapshot_id][position : position + max_bytes]

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Start the log at that snapshot."""
        if snapshot_id.offset <= self.start_offset or snapshot_id == NOTHING:
            return False
        del self.records[: snapshot_id.offset - self.start_offset]
        del self._sizes[: -1 - len(self.records)]
        self.start_offset = snapshot_id.offset
        del self.control_offsets[: bisect_left(self.control_offsets, snapshot_id.offset)]
        # A leader's high watermark may be ahead of its own flushed offset; the snapshot is durable.
        self.flushed_offset = max(self.flushed_offset, snapshot_id.offset)
        kept = [entry for entry in self.epochs if entry[1] >= snapshot_id.offset]
        older = [entry[0] for entry in self.epochs if entry[1] < snapshot_id.offset]
        is_within = older and self.records and (not kept or kept[0][1] > snapshot_id.offset)
        self.epochs = [(older[-1], snapshot_id.offset), *kept] if is_within else kept
        self._keep_snapshots_from(snapshot_id.offset)
        return True

    def _keep_snapshots_from(self, offset: int) -> None:
        self.snapshot_infos = [info for info in self.snapshot_infos if info.id.offset >= offset]
        kept = {info.id for info in self.snapshot_infos}
        self.snapshot_bytes = {id_: data for id_, data in self.snapshot_bytes.items() if id_ in kept}

    # A snapshot received from the leader

    def append_snapshot_slice(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Store a slice."""
        if position == 0:
            self.received = ReceivedSnapshot(snapshot_id)
        received = self.received
        if received is None or received.id != snapshot_id or len(received.data) != position:
            raise ValueError(f"a slice at {position} of snapshot {snapshot_id} does not follow")
        received.data += data

    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """Record that a check is requested."""
        if self.received is None:
            raise ValueError("no snapshot was received")
        self.checks.append((self.received, on_done))

    def finish_check(self) -> None:
        """End the oldest check in progress."""
        received, on_done = self.checks.pop(0)
        error = damage_of(received)
        received.is_checked = error is None
        on_done(error)

    def install_received_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Replace the log by the checked snapshot."""
        self.finish_received_snapshot(snapshot_id)
        self.truncate_to_latest_snapshot()

    def finish_received_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """The first, durable half of an install: the snapshot exists, and is newer than the log end."""
        received, self.received = self.received, None
        if received is None or received.id != snapshot_id or not received.is_checked:
            raise ValueError(f"snapshot {snapshot_id} was not received and checked")
        self.snapshot_infos = [info for info in self.snapshot_infos if info.id != snapshot_id]
        self.add_snapshot(SnapshotInfo(snapshot_id, len(received.data), 0), received.data)

    def truncate_to_latest_snapshot(self) -> None:
        """The second half, which every start repeats: a log that ends before its newest snapshot is replaced by it."""
        latest = self.latest_snapshot_id
        if latest is None or (latest.epoch, latest.offset) <= (self.last_record_epoch, self.end_offset):
            return
        self.begin_at(latest.offset)
        self._cut_flush(latest.offset)
        self._keep_snapshots_from(latest.offset)

    def begin_at(self, offset: int) -> None:
        """Drop all records; the next one gets that offset."""
        self.records, self.epochs, self.control_offsets, self._encoded = [], [], [], {}
        self._sizes = [0]
        self.start_offset = self.flushed_offset = offset

    def drop_received_snapshot(self) -> None:
        """Discard the received slices."""
        self.received = None

    @property
    def last_record_epoch(self) -> int:
        """The epoch of the last record; -1 for none."""
        return self.records[-1].epoch if self.records else -1

    # Loss

    def lose_unflushed(self, keep: int = 0) -> None:
        """A power failure: of the unflushed records, the first `keep` survive, in complete batches."""
        end = min(self.flushed_offset + keep, self.end_offset)
        while end > self.flushed_offset and end < self.end_offset:
            if self.records[end - self.start_offset].batch_offset == end:
                break
            end -= 1
        known = self.flushed_offset, self.proven_end
        self.truncate_to(end)
        self.flushed_offset, self.proven_end = known
        self.on_flush_done = self.flushing_to = None

    def damage(self, keep: int) -> None:
        """Lose flushed records from `keep` on, while stopped; the former end is known (`proven_end`)."""
        flushed = self.flushed_offset
        end = OffsetAndEpoch(flushed, self.epoch_at(flushed - 1)) if flushed > self.start_offset else self.proven_end
        held = end if end.is_up_to_date_with(self.proven_end) else self.proven_end
        if keep < self.end_offset:
            self.truncate_to(self.records[keep - self.start_offset].batch_offset)
        self.proven_end = held

    def restart(self) -> None:
        """The process ended: discard received slices, and complete an interrupted install."""
        self.on_flush_done = self.flushing_to = self.received = None
        self.checks = []
        self.truncate_to_latest_snapshot()


@lru_cache(maxsize=256)
def decode(batches: bytes) -> list[list[Record]]:
    """Decode the result of `read`, cached because several replicas fetch the same batches; do not modify."""
    position, found = 0, []
    while position < len(batches):
        offset, epoch, count = _BATCH.unpack_from(batches, position)
        position += _BATCH.size
        records = []
        for _ in range(count):
            kind, size = _RECORD.unpack_from(batches, position)
            position += _RECORD.size + size
            records.append(Record(epoch, offset, kind, batches[position - size : position]))
        found.append(records)
    return found


def damage_of(received: ReceivedSnapshot) -> str | None:
    """The error in a received snapshot, or None."""
    try:
        found = memory_snapshot.decode(received.data).id
    except ValueError as error:
        return str(error)
    return None if found == received.id else f"it is snapshot {found}, not {received.id}"
