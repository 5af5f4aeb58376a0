"""A replica of the metadata quorum: its log and snapshot files, fetches from its leader and the leader's answers."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Self, final

from klamm._engine.client import Conditions
from klamm._engine.metadata import Image
from klamm._engine.node import Engine

class StorageError(Exception):
    """A file or folder cannot be used; the message says which, what went wrong, and what to do."""

@final
class MetadataLog:
    """The log of `__cluster_metadata-0` with its snapshots (KIP-630). Every method may raise StorageError.

    Nothing blocks but the constructor, `truncate_to`, `delete_before`, `install_received_snapshot` and `close`: appends
    go to the page cache.
    """

    def __new__(
        cls,
        directory: str | PathLike[str],
        *,
        segment_bytes: int,
        segment_ms: int,
        now_ms: int,
        is_volatile: bool = False,
        accept_loss: bool = False,
        voters: tuple[int, Sequence[int]] | None = None,
        advice: str | None = None,
    ) -> Self:
        """Open the folder (made when absent) and check every batch in it. Volatile: appends and flushes never sync.

        A log that lost records (see `proven_end`) is refused, and nothing is changed. It is cut where it is damaged
        when `accept_loss`, or when other voters have the records: `voters` is this node's id and the configured voters.
        `advice`: what the error says that can be done, for a log that no command of klamm knows.
        """
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def proven_end(self) -> tuple[int, int]:
        """A lower bound of what was durable in the log (offset, epoch). It exceeds the end while records are lost."""
    @property
    def size_bytes(self) -> int: ...
    def counters(self) -> dict[str, int]:
        """The counters of the log since it was opened, by name; see `klamm.node.counters`."""
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(end offset, epoch) of the largest epoch that is not above `epoch`."""
    def epoch_at(self, offset: int) -> int: ...
    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """One batch of record values; its last offset. ValueError: larger than 8 MiB, nothing appended."""
    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """One control batch of (type, value); its last offset."""
    def append_fetched(self, batches: bytes, max_epoch: int, now_ms: int) -> int:
        """Append complete batches of the leader; returns the end offset. ValueError: they do not continue the log."""
    def start_flush(self) -> None:
        """Flush what was appended, on a thread of the engine."""
    @property
    def flush_fd(self) -> int:
        """A descriptor that is readable while there is something for `take_flushed`."""
    def take_flushed(self) -> list[tuple[int, str | None]]:
        """For each flush completed since the last call: the flushed offset (-1 if it failed), and the error."""
    def read(self, offset: int, max_bytes: int) -> bytes: ...
    def replay(self, image: Image, start: int, end: int) -> Image:
        """`image` with the records of `[start, end)`. MetadataReplayError: a record does not fit."""
    def control_records(self, start: int = ...) -> list[tuple[int, int, bytes]]:
        """(offset, type, value) from `start` (-1) on; those of the latest snapshot at the last offset it contains."""
    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove the records at or above `offset`, and the whole batch that contains it."""
    def bytes_from(self, offset: int) -> int: ...
    def snapshots(self) -> list[tuple[int, int, int, int]]:
        """(end offset, epoch, bytes, last contained log timestamp in ms), oldest first."""
    def snapshot_path(self, end_offset: int, epoch: int) -> str: ...
    def snapshot_finished(self, end_offset: int, epoch: int) -> None: ...
    def delete_before(self, end_offset: int, epoch: int, now_ms: int) -> bool: ...
    def read_snapshot(self, end_offset: int, epoch: int, position: int, max_bytes: int) -> bytes | None:
        """Bytes of a finished snapshot; None: there is no such snapshot."""
    def append_snapshot_slice(self, end_offset: int, epoch: int, position: int, data: bytes) -> None:
        """Store a slice of the leader's snapshot; position 0 starts over. ValueError: it is not the next slice."""
    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """Check every batch of it and make it durable; `on_done(error)` is called on a thread of the engine."""
    def received_snapshot_path(self) -> str | None:
        """The path of the snapshot that is being received."""
    def install_received_snapshot(self, end_offset: int, epoch: int, now_ms: int) -> None:
        """Replace the log by it. Blocks; durable when it returns. ValueError: it was not received and checked."""
    def drop_received_snapshot(self) -> None: ...
    def close(self) -> None: ...

@final
class FetchAnswers:
    """Answers fetches of the quorum's replicas on the network's threads, while a lease is granted.

    It answers a fetch that arrives on a controller's listener in version 17 or 18, if the epoch and the last fetched
    epoch are the leader's, the offset is above the start of that epoch and within this log, and `add_replica` named the
    replica. The response has the available records; a fetch without any waits for records (a voter), for a higher high
    watermark, or for its timeout. Every other fetch is a request to Python. After `end` all fetches are, also those
    that wait.
    """

    def __new__(cls, log: MetadataLog, engine: Engine) -> Self:
        """For the metadata log of the engine's node; only one for each. OSError: no file descriptor is free."""
    @property
    def fd(self) -> int:
        """A descriptor that is readable when the high watermark advanced, or when `take` has many fetches."""
    @property
    def has_news(self) -> bool:
        """Whether `fd` is readable now."""
    def begin(
        self,
        *,
        cluster_id: str,
        leader_id: int,
        epoch: int,
        start_offset: int,
        high_watermark: int,
        voters: Sequence[tuple[int, int]],
        counts_itself: bool,
        endpoints: Sequence[tuple[str, str, int]],
        take_timeout_ms: int,
    ) -> None:
        """Grant the lease; no replica is added yet.

        `start_offset`: the start of the epoch; only records above it are committed by counting replicas. `voters`: id
        and end offset of each voter except this replica, -1 if unknown. `endpoints`: listener, host and port. If `take`
        is not called for `take_timeout_ms` after a fetch, later fetches are requests again, so that the other replicas
        notice that this process has stopped.
        """
    def add_replica(self, replica_id: int, directory_id: bytes | None, counts: bool) -> int | None:
        """Answer this replica's fetches from now on. `counts`: they count for the voter with its id.

        Returns its number, or None if its fetches remain requests: no lease is granted, the id is a voter's but the
        directory is not, or there are a thousand replicas.
        """
    def offer(self) -> None:
        """Offer voters all records of the log, so that those of one turn of the loop go out together."""
    def raise_high_watermark(self, offset: int) -> None:
        """The core's high watermark is `offset`."""
    def notify_voters(self) -> None:
        """Answer waiting voters that know a lower high watermark. No client waits for them, so they come last."""
    def take(self) -> list[tuple[int, int, int, int]]:
        """The fetches answered since the last call: replica's number, fetch offset, log end offset then, age in ms.

        `fd` is not readable any more.
        """
    def end(self) -> list[tuple[int, int, int, int]]:
        """Revoke the lease: no fetch is answered after this returns. Returns the fetches not yet taken."""

@final
class FetchStream:
    """A follower's fetches from the leader of the quorum, on a thread, while no decision is needed.

    The records of a plain response are appended and flushed, and the next fetch acknowledges them. Any other response
    ends the run and is returned by `take`. No method waits for the leader; `hold`, `stop` and `release` wait for an
    append at most.
    """

    def __new__(cls, log: MetadataLog) -> Self:
        """OSError: no file descriptor is free."""
    @property
    def fd(self) -> int:
        """A descriptor that is readable when the high watermark advanced, or the run has ended."""
    def start(
        self,
        host: str,
        port: int,
        *,
        version: int,
        client_id: str,
        cluster_id: str | None,
        replica_id: int,
        directory_id: bytes | None,
        epoch: int,
        leader_id: int,
        high_watermark: int,
        max_wait_ms: int,
        max_bytes: int,
        timeout_ms: int,
        flushes: bool,
        conditions: Conditions | None = None,
    ) -> None:
        """Start a run at the log end offset; it is not held. The previous run is stopped.

        `flushes`: a fetch acknowledges only flushed records. ValueError: the version is not 17 or 18, or a text is too
        long. OSError: no thread can be started.
        """
    def hold(self) -> None:
        """Return when the run is between two steps: it appends and sends nothing before `release` or `stop`.

        A flush in progress continues, and responses are still received.
        """
    def release(self) -> None:
        """Let the run continue after `hold`."""
    def stop(self) -> None:
        """End the run, held or not: it appends, sends and reports nothing more. A flush may still be in progress."""
    def take(self) -> tuple[int, int, int, int, int, int, tuple[str, int, bytes] | tuple[str, str] | None] | None:
        """The progress since the last call, or None; `fd` is not readable any more.

        Fetch offset, last fetched epoch and high watermark of the last request; ms since it was sent; ms since the last
        response (-1: none since the last call); the leader's high watermark; how the run ended, returned once:
        ("answer", version, body), ("failed", why there is no response) or ("disk", which flush failed). Numbers are -1
        if they are unknown: a run that could not connect has sent nothing.
        """
    def close(self) -> None:
        """Stop, and wait for the threads, which may finish a flush."""

def write_snapshot(
    path: str | PathLike[str],
    image: Image,
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
    control_records: Sequence[tuple[int, bytes]] = ...,
) -> int:
    """Write a snapshot (KIP-630) and return its size in bytes. It appears once it is complete, durable, read-only.

    `control_records` (type, value) are raft's, for the head of the file. Blocks, without the GIL: call it on a thread.
    StorageError; MetadataRecordError when the image's metadata.version is missing or too old for what it holds.
    """

def load_snapshot(path: str | PathLike[str], end_offset: int, epoch: int) -> Image:
    """The image in a snapshot file, up to the record before `end_offset`. Blocks. StorageError: absent or damaged."""

def read_checkpoint(path: str | PathLike[str]) -> list[bytes]:
    """The metadata records of a file: what bootstrap.checkpoint holds. Blocks. StorageError."""

def write_values_snapshot(
    path: str | PathLike[str],
    values: Sequence[bytes],
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
    control_records: Sequence[tuple[int, bytes]] = ...,
) -> int:
    """As write_snapshot, of values that are no metadata records: those of `klamm.raft`'s own state machines."""

def read_values_snapshot(path: str | PathLike[str]) -> list[bytes]:
    """The values of such a file, in order. Blocks. StorageError: absent or damaged."""

def bootstrap_checkpoint(records: Sequence[bytes], now_ms: int) -> bytes:
    """`bootstrap.checkpoint` (Kafka's `BootstrapDirectory`): framed records between snapshot header and footer."""

def voters_checkpoint(kraft_version: int, voters: Sequence[tuple[int, bytes, str, str, int]], now_ms: int) -> bytes:
    """The content of the snapshot 0-0 of a dynamic quorum; a voter is id, directory id, listener, host, port."""
