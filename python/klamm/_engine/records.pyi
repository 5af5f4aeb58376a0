"""The record codec: batches to records or columns, and back."""

from collections.abc import Iterable, Sequence
from typing import final

Headers = Sequence[tuple[str, bytes | None]]  # in the stub only

Row = tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Headers]  # in the stub only

class RecordsDamagedError(ValueError):
    """The bytes are not record batches, or decompress to more than allowed."""

    error_code: int
    """The error code (Kafka's `Errors`) of a produce of such bytes."""

@final
class Record:
    """One record of a batch, with a copy of its bytes."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int:
        """-1 for none."""
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None:
        """None is a tombstone."""
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

@final
class RecordBatch:
    """A batch: the fields of its header, and its records on demand. Keeps the bytes that contain it alive."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def compression(self) -> str:
        """RecordsDamagedError for an id that is not assigned."""
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def producer_id(self) -> int:
        """-1 for none, as epoch and sequence."""
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int:
        """The count in the header: may be 0 after compaction."""
    @property
    def size_bytes(self) -> int: ...
    def check(self) -> None:
        """RecordsDamagedError: wrong checksum, codec, offsets or count."""

    def records(self, *, decompressed_bytes_max: int = ...) -> list[Record]:
        """All records, control records too. RecordsDamagedError."""

    def columns(self, *, decompressed_bytes_max: int = ...) -> RecordColumns:
        """All records. RecordsDamagedError."""

    def __bytes__(self) -> bytes: ...

@final
class Buffer:
    """Read-only memory with the buffer protocol, for memoryview(), numpy or pyarrow. Numbers in native order."""

    def __len__(self) -> int:
        """Its size in bytes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class BytesColumn:
    """Byte strings or nulls as Arrow's `binary`: value i is data[offsets[i]:offsets[i + 1]]."""

    @property
    def offsets(self) -> Buffer:
        """int32, one more than values."""
    @property
    def data(self) -> Buffer: ...
    @property
    def validity(self) -> Buffer | None:
        """One bit for each value, lowest first, 0 for null; None if no value is null."""
    @property
    def null_count(self) -> int: ...
    def __len__(self) -> int: ...

@final
class RecordColumns:
    """Records as columns; row i is the record at offsets[i]."""

    @property
    def count(self) -> int:
        """Rows; also len()."""
    @property
    def offsets(self) -> Buffer:
        """int64."""
    @property
    def timestamps(self) -> Buffer:
        """int64, ms; -1 for none."""
    @property
    def keys(self) -> BytesColumn: ...
    @property
    def values(self) -> BytesColumn: ...
    @property
    def header_offsets(self) -> Buffer:
        """int32, one more than rows: row i has the headers [header_offsets[i], header_offsets[i + 1])."""
    @property
    def header_keys(self) -> BytesColumn: ...
    @property
    def header_values(self) -> BytesColumn: ...
    def __len__(self) -> int: ...

def decode_records(
    data: bytes, *, first_offset: int = ..., check_crc: bool = ..., decompressed_bytes_max: int
) -> list[Record]:
    """The records of complete batches from an offset on, without control batches. Raises RecordsDamagedError."""

def decode_columns(
    data: bytes, *, first_offset: int = ..., check_crc: bool = ..., decompressed_bytes_max: int
) -> RecordColumns:
    """The same as columns. Releases the GIL. RecordsDamagedError, also for more than 2 GiB in a column."""

def record_batches(data: bytes) -> list[RecordBatch]:
    """The complete batches, including control batches. Raises RecordsDamagedError if bytes cannot be a batch."""

def next_offset(data: bytes) -> int | None:
    """The offset after the last complete batch of any kind. Raises RecordsDamagedError."""

def encode_batch(
    records: Iterable[object],
    *,
    compression: str = ...,
    level: int | None = ...,
    base_offset: int = ...,
    leader_epoch: int = ...,
    producer_id: int = ...,
    producer_epoch: int = ...,
    base_sequence: int = ...,
    transactional: bool = ...,
    log_append_time_ms: int | None = ...,
) -> bytes:
    """One batch of rows: tuples (timestamp in ms, key, value[, headers]), or objects with those attributes.

    ValueError: no rows, no such codec or level. TypeError: a row of another kind. RecordsDamagedError: too large.
    """

def encode_end_transaction_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch with one COMMIT or ABORT."""
