"""Kafka's record batches as bytes: encodes records to a batch, and decodes batches to records or columns.

    data = encode([(1_700_000_000_000, b"key", b"value")], compression="zstd")
    for record in decode(data):
        print(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
    table = to_arrow(decode_columns(data))

Only message format 2 is read and written, which every broker since Kafka 0.11 speaks. What is decoded may come from
anyone: checksums are verified, and a batch that would decompress to more than allowed is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm._engine import records as engine_records
from klamm._engine.records import Buffer, BytesColumn, Record, RecordBatch, RecordColumns, RecordsDamagedError

if TYPE_CHECKING:
    from klamm._engine.records import Row

__all__ = [
    "CODECS",
    "Buffer",
    "BytesColumn",
    "NewRecord",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecordsDamagedError",
    "batches",
    "decode",
    "decode_columns",
    "encode",
    "end_transaction_marker",
    "next_offset",
    "to_arrow",
]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

DECOMPRESSED_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to encode. A value of None is a tombstone; times are ms since 1970."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = -1
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode(
    records: Iterable[NewRecord | Record | Row],
    *,
    compression: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch of the records, numbered from `base_offset` up.

    A record is a NewRecord, a Record, or (fastest) a tuple of timestamp in ms, key, value and perhaps headers. With
    `log_append_time_ms` all records have that time. ValueError: no records, or a codec or level that does not exist;
    TypeError names what a record must be; RecordsDamagedError when they are more than a batch can hold (2 GiB).
    """
    return engine_records.encode_batch(
        records,
        compression=compression,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        log_append_time_ms=log_append_time_ms,
    )


def decode(
    data: bytes,
    *,
    first_offset: int = 0,
    check_crc: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """The records of the batches in `data` from `first_offset` on, without control records.

    A batch that is cut at the end, as fetched bytes may be, is left out. RecordsDamagedError: bytes that are no
    batches, a wrong checksum, or a batch that decompresses to more than allowed.
    """
    return engine_records.decode_records(
        data, first_offset=first_offset, check_crc=check_crc, decompressed_bytes_max=decompressed_bytes_max
    )


def decode_columns(
    data: bytes,
    *,
    first_offset: int = 0,
    check_crc: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> RecordColumns:
    """The same records as a few contiguous buffers in Arrow's layout: no object a record. Releases the GIL."""
    return engine_records.decode_columns(
        data, first_offset=first_offset, check_crc=check_crc, decompressed_bytes_max=decompressed_bytes_max
    )


def batches(data: bytes) -> list[RecordBatch]:
    """The whole batches in `data`, control batches too: their headers, and their records on demand.

    Only where each begins and ends is checked: see RecordBatch.check(). RecordsDamagedError.
    """
    return engine_records.record_batches(data)


def next_offset(data: bytes) -> int | None:
    """The offset after the last complete batch in `data`, including control batches; None if there is none.

    Where to read on: the last records of a batch may be gone through compaction. Raises RecordsDamagedError.
    """
    return engine_records.next_offset(data)


def end_transaction_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction in a partition (`ControlRecordType`)."""
    return engine_records.encode_end_transaction_marker(
        producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp_ms=timestamp_ms
    )


def to_arrow(columns: RecordColumns) -> Any:
    """The columns as a pyarrow.RecordBatch, without a copy: offset, timestamp, key, value, headers. Needs pyarrow."""
    import pyarrow as pa

    count = len(columns)
    int64 = pa.int64()
    offsets = pa.Array.from_buffers(int64, count, [None, pa.py_buffer(columns.offsets)])
    times = pa.Array.from_buffers(pa.timestamp("ms", "UTC"), count, [None, pa.py_buffer(columns.timestamps)])
    header = pa.StructArray.from_arrays(
        [_arrow_column(columns.header_keys, pa.binary()), _arrow_column(columns.header_values, pa.binary())],
        names=["key", "value"],
    )
    header_offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(columns.header_offsets)])
    return pa.record_batch(
        {
            "offset": offsets,
            "timestamp": times,
            "key": _arrow_column(columns.keys, pa.binary()),
            "value": _arrow_column(columns.values, pa.binary()),
            "headers": pa.ListArray.from_arrays(header_offsets, header),
        }
    )


def _arrow_column(column: BytesColumn, kind: Any) -> Any:
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column), buffers, null_count=column.null_count)
