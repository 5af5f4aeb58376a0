"""The metadata log as the quorum uses it: value types, two protocols, and divergence (`RaftLog` in Kafka).

The sans-IO core reads only `LogView`; the driver uses `MetadataLog`. No method blocks: an append is in the page cache
at once and durable when `flushed_offset` has passed it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from klamm.protocol.value import Value


class OffsetAndEpoch(NamedTuple):
    """The end of a log or of a snapshot: the offset after its last record, and that record's epoch."""

    offset: int
    epoch: int

    def is_up_to_date_with(self, other: "OffsetAndEpoch") -> bool:
        """Whether a log that ends here has all that a log that ends at `other` may have committed (Raft 5.4.1)."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


# Where an empty log ends, and the id of the snapshot that a formatted directory may begin with (never served).
NOTHING = OffsetAndEpoch(0, 0)


class SnapshotInfo(Value):
    """A finished snapshot file: its id, bytes, and the append time of the last record it contains."""

    id: OffsetAndEpoch
    size_bytes: int
    last_contained_log_timestamp_ms: int


class ControlRecord(NamedTuple):
    """A control record of the log, or of its latest snapshot: then `offset` is the last one that it contains, or -1."""

    offset: int
    type: int
    value: bytes


class MetadataLogError(Exception):
    """A write of the metadata log or quorum-state failed; the message names the file. Nothing more is written to it."""


class LogView(Protocol):
    """The part of the log that the core reads. Invariant: start <= flushed <= end."""

    @property
    def start_offset(self) -> int:
        """The log start offset."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the latest snapshot when the log is empty; 0 when there is neither."""

    @property
    def proven_end(self) -> OffsetAndEpoch:
        """The end of records that the log is known to have stored durably: above its end while records are lost
        (damaged files).

        `truncate_to` lowers it: records that a later leader truncated were not committed.
        """

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the records of `epoch` end in this log, by its leader-epoch checkpoint.

        `epoch` is the last one: (end offset, epoch). Larger than the last: (end offset, last epoch). Otherwise the
        start offset of the next larger epoch, with the largest epoch that is not above `epoch` (with `epoch` itself
        when even the first is larger; if that lands on the earliest snapshot's offset, the snapshot's own epoch).
        """

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, which lies in `[start_offset, end_offset)`, or below in a snapshot."""

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest finished snapshot."""

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest finished snapshot."""

    def control_records(self, start: int = -1) -> Sequence[ControlRecord]:
        """Those of the latest snapshot and the log at or above `start`, ascending: voters and kraft.version are there.

        Cheap when nothing is new: it is asked after every append.
        """

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The bytes of that finished snapshot; None when there is none."""


def durable_end(log: LogView) -> OffsetAndEpoch:
    """Where the part of the log ends that is on stable storage."""
    flushed = log.flushed_offset
    if flushed >= log.end_offset:
        return OffsetAndEpoch(log.end_offset, log.last_epoch)
    return OffsetAndEpoch(flushed, log.epoch_at(flushed - 1)) if flushed > 0 else NOTHING


class MetadataLog(LogView, Protocol):
    """The log of `__cluster_metadata-0` as the driver uses it. All methods are called on one thread."""

    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """Append the record values as ONE batch of `epoch` and return its last offset.

        Raises ValueError when the batch would be larger than the log allows (8 MiB); nothing is appended then. The
        write may be deferred to the flush that follows, which then reports its errors.
        """

    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """Append control records, each (type, encoded value), as ONE control batch and return its last offset.

        The first batch of an epoch also enters (epoch, its base offset) in the leader-epoch checkpoint.
        """

    def append_fetched(self, batches: bytes, max_epoch: int) -> int:
        """Append whole batches from the leader verbatim and return the new end offset.

        Raises ValueError, having appended nothing from the first bad batch on, when one is corrupt, does not begin at
        the end offset, or has an epoch below the last or above `max_epoch`.
        """

    def start_flush(self, on_done: Callable[[int, str | None], None]) -> None:
        """Begin to make durable what is appended so far, and return at once.

        `on_done(flushed_offset, error)` is called once: by `on_flush_end` where there is a `flush_fd`, else from any
        thread. An error (the text names file and cause) is final: a failed fsync is never retried. At most one flush
        runs at a time; the driver sees to that.
        """

    @property
    def flush_fd(self) -> int | None:
        """A descriptor that is readable when a flush has ended: then `on_flush_end` is to be called."""

    def on_flush_end(self) -> None:
        """Report the flush that has ended, if any."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on: at least one, then as many as fit in `max_bytes`."""

    def truncate_to(self, offset: int) -> None:
        """Drop every record at or above `offset`; `flushed_offset` follows. Durable when it returns.

        Of a batch that holds `offset` nothing stays: then the log ends below it.
        """

    def bytes_from(self, offset: int) -> int:
        """How many bytes the batches at or above `offset` take."""

    @property
    def size_bytes(self) -> int:
        """How many bytes the log's segments take, snapshots not counted."""

    def snapshots(self) -> Sequence[SnapshotInfo]:
        """The finished snapshots, oldest first."""

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Move the log start to that snapshot, drop whole segments below and older snapshots; False if nothing went."""

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes | None:
        """The snapshot's bytes from `position` on, `max_bytes` at most; None when there is no such snapshot."""

    # A snapshot from the leader is stored next to the log until it is installed. At most one is being received.

    def append_snapshot_slice(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Store the slice; it need not be durable. Position 0 discards earlier slices.

        Raises ValueError and stores nothing when the slice does not follow the previous one.
        """

    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """Start to check the complete received snapshot and to make it durable, and return at once.

        `on_done(error)` is called once, from any thread; the text names the file and the problem.
        """

    def install_received_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Make the checked snapshot the newest: the log begins and ends with it, older snapshots are deleted.

        Durable when it returns. A crash before that leaves either the previous log or the new one. Raises ValueError
        when that snapshot was not received and checked.
        """

    def drop_received_snapshot(self) -> None:
        """Drop the received part of a snapshot that is not installed."""


class Valid(Value):
    """The fetch position is a prefix of this log."""


class Diverging(Value):
    """The follower must truncate: the largest common epoch and where it ends here."""

    end: OffsetAndEpoch


class NeedsSnapshot(Value):
    """The log starts above that offset: fetch this snapshot first."""

    id: OffsetAndEpoch


FetchPosition = Valid | Diverging | NeedsSnapshot


def check_fetch_position(log: LogView, offset: int, last_epoch: int) -> FetchPosition:
    """How the leader answers a fetch at `offset` after `last_epoch`; Kafka's `RaftLog.validateOffsetAndEpoch`."""
    latest, earliest = log.latest_snapshot_id, log.earliest_snapshot_id
    if offset == 0 and latest is not None and latest != NOTHING:
        return NeedsSnapshot(latest)  # faster than reading the log from its beginning
    if offset == 0 and log.start_offset == 0:
        return Valid()
    if earliest is not None and latest is not None:
        below_start = offset < log.start_offset
        not_at_start = offset == log.start_offset and last_epoch != earliest.epoch
        if below_start or not_at_start or last_epoch < earliest.epoch:
            return NeedsSnapshot(latest)
    end = log.end_offset_for_epoch(last_epoch)
    if end.epoch != last_epoch or end.offset < offset:
        return Diverging(end)
    return Valid()


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Where a follower truncates its log if `diverging.epoch` ends at `diverging.offset` in the leader's log."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    own = log.end_offset_for_epoch(diverging.epoch)
    if own.epoch == diverging.epoch:
        return min(own.offset, diverging.offset)
    return own.offset
