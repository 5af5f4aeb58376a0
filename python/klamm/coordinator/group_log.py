"""The log of `__consumer_offsets`, as the coordinator needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from klamm.coordinator.records import LogRecord
from klamm.coordinator.shard import NO_PRODUCER_ID
from klamm.protocol.errors import ErrorCode


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


class GroupLog(Protocol):
    """The log of `__consumer_offsets`."""

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches, each to another partition. Does not block."""
        ...

    async def open(self, partition: int) -> None:
        """Make the partition ready to be loaded, which may take a recovery. Raises KafkaError."""
        ...

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records from log start to log end, committed or not. Raises KafkaError."""
        ...
