"""A checksum over records, of Arrow columns and without Python per record.

Each column is a stream of its own: the lengths of its values, -1 for null, and their bytes, one after another; numbers
are eight or four bytes, little-endian; headers are their count, -1 for null, and the columns of their keys and values.
The checksum is SHA-256 over the SHA-256 of the streams, so it does not depend on how the records were cut into batches,
but on their order. Of equal records it is equal, whatever they were read from.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

CONTENT: Final = ("key", "value", "headers", "timestamp", "timestampType")
"""The fields of a restored record that equal those of the archived one."""
WITH_OFFSETS: Final = (*CONTENT, "offset")


class Digest:
    """Takes batches with at least `columns`, in the order of offsets."""

    def __init__(self, columns: tuple[str, ...] = WITH_OFFSETS) -> None:
        self.columns = columns
        self.records = 0
        self._streams: dict[str, Any] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the next records."""
        self.records += batch.num_rows
        for name in self.columns:
            column = batch.column(name)
            if name == "headers":
                self._headers(column)
            elif pa.types.is_binary(column.type):
                self._values(name, column)
            else:
                self._feed(name, _raw(column))

    def text(self) -> str:
        """The checksum so far, in hexadecimal digits."""
        whole = hashlib.sha256(f"{','.join(self.columns)} {self.records}".encode())
        for name, stream in sorted(self._streams.items()):
            whole.update(name.encode() + stream.digest())
        return whole.hexdigest()

    def _headers(self, column: pa.Array) -> None:
        self._feed("headers", _raw(pc.fill_null(pc.list_value_length(column), -1)))
        pairs = column.flatten()
        self._values("headers.key", pairs.field(0).cast(pa.binary()))
        self._values("headers.value", pairs.field(1))

    def _values(self, name: str, column: pa.Array) -> None:
        self._feed(f"{name}.lengths", _raw(pc.fill_null(pc.binary_length(column), -1)))
        # The bytes of a null value are undefined.
        known = pc.fill_null(column, b"") if column.null_count else column
        _, offsets, data = known.buffers()
        edges = memoryview(offsets).cast("i")
        start, end = edges[known.offset], edges[known.offset + len(known)]
        self._feed(name, data.slice(start, end - start) if end > start else b"")

    def _feed(self, name: str, data: Any) -> None:
        if not len(data):
            return
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = hashlib.sha256()
        stream.update(data)


def _raw(column: pa.Array) -> Any:
    """The bytes of numbers without nulls."""
    if not len(column):
        return b""
    width = column.type.bit_width // 8
    return column.buffers()[1].slice(column.offset * width, len(column) * width)
