"""Runs tasks on Spark: each takes one item and returns one result; Spark retries failed tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm.pipelines.errors import PipelineError
from klamm.spark.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Receives how much is done, and the total."""


def _nothing(done: int, total: int) -> None:
    """Ignores progress."""


NO_PROGRESS: Final[Progress] = _nothing


def run_tasks(spark: SparkSession, task: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """The result of `task` for each item, one Spark task per item. PipelineError states the cause in one line."""
    if not things:
        return []
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        results: list[Any] = spark.sparkContext.parallelize(things, len(things)).map(task).collect()
    except (PySparkException, Py4JError) as error:
        raise PipelineError(reason(error)) from None
    return results


def rounds(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split the items into lists of `size`."""
    for start in range(0, len(things), size):
        yield things[start : start + size]
