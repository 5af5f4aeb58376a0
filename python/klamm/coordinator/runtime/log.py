"""The log of an internal topic, as the coordinator runtime uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from klamm.protocol.errors import ErrorCode

NO_PRODUCER_ID: Final = -1

LogRecord = tuple[bytes, bytes | None]
"""A key and its value as in the log; None is a tombstone."""


class RecordError(Exception):
    """A record that cannot be read. Its partition must not be served."""


class LoadedRecord(NamedTuple):
    """A record of the log. The key of a control record is its type, int16; outside transactions `producer_id` is -1."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    is_control: bool = False


class Producer(NamedTuple):
    """A transactional producer. The log refuses its batch with INVALID_PRODUCER_EPOCH if it knows a newer epoch."""

    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """The end of a transaction in a partition.

    The log refuses it with INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED, by the rules of the transaction
    version.
    """

    producer: Producer
    commits: bool
    coordinator_epoch: int
    transaction_version: int


class Series(NamedTuple):
    """Appends of a shard, each of which builds on those before it.

    The log appends a batch only in the leader epoch, and only if it has appended all earlier ones of the series. After
    a failed append the shard begins another series.
    """

    leader_epoch: int
    number: int
    """Differs from those of all other series of the partition."""


class Batch(NamedTuple):
    """Records to append as one batch, or the marker of a transaction."""

    partition: int
    series: Series
    records: Sequence[LogRecord]
    done: Callable[[ErrorCode | None], None]
    """Called exactly once, at once or later. NONE: the high watermark has passed the batch. Another code: the batch
    will never be committed, nor will any later one of the series. None: the outcome is unknown.
    """
    producer: Producer | None = None
    """The producer of a transactional batch."""
    marker: Marker | None = None
    """The marker; then there are no records."""


class CoordinatorLog(Protocol):
    """The log of an internal topic."""

    @property
    def topic(self) -> str:
        """The topic's name, for messages."""
        ...

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches in order. Does not block."""
        ...

    async def open(self, partition: int) -> None:
        """Prepare the partition for loading, which may include log recovery. Raises KafkaError."""
        ...

    def load(self, partition: int) -> AsyncIterator[Sequence[LoadedRecord]]:
        """All records up to the log end, committed or not, in parts for one turn of the loop. Raises KafkaError.

        Of records with the same key outside of transactions only the last one has to be there, as after a compaction.
        """
        ...
