"""Answers as rows of Python, times in ms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def in_ms(answer: pa.Table) -> pa.Table:
    """With numbers for times: a session of Spark has a time zone of its own."""
    for at, field in enumerate(answer.schema):
        if pa.types.is_timestamp(field.type):
            per_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[field.type.unit]
            answer = answer.set_column(at, field.name, pc.divide(answer.column(at).cast(pa.int64()), int(per_ms)))
    return answer


def rows_of_answer(answer: pa.Table) -> list[dict[str, Any]]:
    """A dict for each row."""
    found: list[dict[str, Any]] = in_ms(answer).to_pylist()
    return found


def columns_of_answer(answer: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of each row."""
    chosen = in_ms(answer.select(list(names)))
    return zip(*(chosen.column(name).to_pylist() for name in names), strict=True)
