"""The log of an internal topic, as the coordinator runtime needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from klamm.protocol.errors import ErrorCode

NO_PRODUCER_ID: Final = -1

LogRecord = tuple[bytes, bytes | None]
"""A key and its value, None for a tombstone, as they stand in the log."""


class RecordError(Exception):
    """A record that cannot be read: the partition that holds it must not be served."""


class LoadedRecord(NamedTuple):
    """A record of the log, or a control record, whose key says which; `producer_id` is -1 outside transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    is_control: bool = False


class Batch(NamedTuple):
    """Records to append as one batch."""

    partition: int
    records: Sequence[LogRecord]
    done: Callable[[ErrorCode | None], None]
    """Called once, at once or later: NONE when the high watermark has passed the batch, else why it never will be.

    None: its outcome is unknown.
    """


class CoordinatorLog(Protocol):
    """The log of an internal topic."""

    @property
    def topic(self) -> str:
        """The topic's name, for messages."""
        ...

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches, each to another partition. Does not block."""
        ...

    async def open(self, partition: int) -> None:
        """Make the partition ready to be loaded, which may take a recovery. Raises KafkaError."""
        ...

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records from log start to log end, committed or not. Raises KafkaError."""
        ...
