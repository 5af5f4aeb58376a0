"""Spark's filters, as far as they can reduce what is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource as spark

from klamm.spark.ranges.narrowing import Narrowing, Test

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_COMPARED: Final[dict[type[spark.Filter], Callable[[Any, Any], bool]]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda found, values: found in values,
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


def push(filters: Iterable[spark.Filter], narrowing: Narrowing) -> Iterator[spark.Filter]:
    """Narrow by each filter; yields the filters that Spark must still apply to rows."""
    for one in filters:
        if not _obey(one, narrowing):
            yield one


def _obey(one: spark.Filter, narrowing: Narrowing) -> bool:
    """Narrow by the filter; returns whether no remaining row can fail it."""
    column = _column(one)
    if isinstance(one, spark.IsNotNull) and column in _NEVER_NULL:
        return True
    match column:
        case "topic" | "partition":
            test = _test(one)
            if test is None:
                return False
            (narrowing.topic if column == "topic" else narrowing.partition).append(test)
            return True
        case "offset":
            return _narrow_offsets(one, narrowing)
        case "timestamp":
            _narrow_timestamps(one, narrowing)
    return False


def _column(one: spark.Filter) -> str | None:
    """The top-level column of a filter."""
    path: tuple[str, ...] = getattr(one.child if isinstance(one, spark.Not) else one, "attribute", ())
    return path[0] if len(path) == 1 else None


def _test(one: spark.Filter) -> Test | None:
    """The filter as a function of a non-null value; None if it depends on SQL's null semantics."""
    if isinstance(one, spark.Not):
        inner = _test(one.child)
        return None if inner is None else lambda found: not inner(found)
    compare = _COMPARED.get(type(one))
    value = getattr(one, "value", None)
    if compare is None or value is None or (isinstance(value, tuple) and None in value):
        return None
    return lambda found: compare(found, value)


def _narrow_offsets(one: spark.Filter, narrowing: Narrowing) -> bool:
    """Bounds of the offset; returns whether they are equivalent to the filter."""
    match one:
        case spark.EqualTo(value=int(value)) | spark.EqualNullSafe(value=int(value)):
            narrowing.start_at(value)
            narrowing.end_at(value + 1)
        case spark.GreaterThan(value=int(value)):
            narrowing.start_at(value + 1)
        case spark.GreaterThanOrEqual(value=int(value)):
            narrowing.start_at(value)
        case spark.LessThan(value=int(value)):
            narrowing.end_at(value)
        case spark.LessThanOrEqual(value=int(value)):
            narrowing.end_at(value + 1)
        case spark.In(value=values):
            if known := [value for value in values if isinstance(value, int)]:
                narrowing.start_at(min(known))
                narrowing.end_at(max(known) + 1)
            return False
        case _:
            return False
    return True


def _narrow_timestamps(one: spark.Filter, narrowing: Narrowing) -> None:
    """The earliest timestamp that passes, rounded down to Kafka's milliseconds."""
    match one:
        case (
            spark.EqualTo(value=datetime() as value)
            | spark.EqualNullSafe(value=datetime() as value)
            | spark.GreaterThan(value=datetime() as value)
            | spark.GreaterThanOrEqual(value=datetime() as value)
        ) if value.tzinfo is not None:
            narrowing.start_at_timestamp(max(0, (value - _EPOCH) // timedelta(milliseconds=1)))
        case _:
            pass
