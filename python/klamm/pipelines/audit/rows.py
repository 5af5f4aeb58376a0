"""Answers as rows of Python, times in ms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_AT_A_TIME: Final = 8192


def in_ms(answer: pa.Table) -> pa.Table:
    """With numbers for times: a session of Spark has a time zone of its own."""
    for at, field in enumerate(answer.schema):
        if pa.types.is_timestamp(field.type):
            per_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[field.type.unit]
            answer = answer.set_column(at, field.name, pc.divide(answer.column(at).cast(pa.int64()), int(per_ms)))
    return answer


def rows_of_answer(answer: pa.Table) -> Iterator[dict[str, Any]]:
    """A dict for each row, by offset. Few of them are there at a time: an answer may have millions."""
    offset = "offset" if "offset" in answer.schema.names else "from_offset"
    by_offset = answer.sort_by(offset) if offset in answer.schema.names else answer
    for batch in in_ms(by_offset).to_batches(max_chunksize=_AT_A_TIME):
        yield from batch.to_pylist()


def columns_of_answer(answer: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of each row."""
    for batch in in_ms(answer.select(list(names))).to_batches(max_chunksize=_AT_A_TIME):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
