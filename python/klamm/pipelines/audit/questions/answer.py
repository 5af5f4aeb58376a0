"""A question: its columns, and the function that computes its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts

INT: Final = pa.int32()
LONG: Final = pa.int64()
TEXT: Final = pa.string()
BOOL: Final = pa.bool_()
IDS: Final = pa.list_(pa.int32())
TIME: Final = pa.timestamp("us", "UTC")
_US_PER_MS: Final = 1000

Rows = Iterable[tuple[Any, ...]]
"""In the order of the columns; times in ms."""


class RecordQuestion(NamedTuple):
    """A question that is answered from the records."""

    columns: Mapping[str, pa.DataType]
    rows: Callable[[Facts], Rows]
    is_of_topics: bool = True
    """Whether topics can be split among tasks: rows of a topic depend on records of that topic only."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return pa.schema(list(self.columns.items()))

    def answer(self, facts: Facts) -> pa.Table:
        """The answer."""
        return table(self.columns, self.rows(facts))


class DerivedQuestion(NamedTuple):
    """A question that aggregates the answers to others."""

    columns: Mapping[str, pa.DataType]
    questions: tuple[str, ...]
    rows: Callable[..., Rows]
    """Computed from the rows of those answers, each by offset."""


def table(columns: Mapping[str, pa.DataType], rows: Rows) -> pa.Table:
    """Rows as a table."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [_array(of_column, kind) for of_column, kind in zip(values, columns.values(), strict=True)]
    return pa.table(arrays, schema=pa.schema(list(columns.items())))


def _array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    if kind != TIME:
        return pa.array(values, kind)
    return pa.array([None if one is None else one * _US_PER_MS for one in values], LONG).cast(TIME)
