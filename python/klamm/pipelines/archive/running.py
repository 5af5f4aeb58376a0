"""Tasks on Spark: each gets one thing and gives one; Spark decides where and when, and tries again what failed."""

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
"""Told how much is done, and of how much."""


def _nothing(done: int, total: int) -> None:
    """Progress that nobody looks at."""


NO_PROGRESS: Final[Progress] = _nothing


def run_tasks(spark: SparkSession, task: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """What `task` gives for each, a Spark task for each. PipelineError says in a line what failed."""
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
    """The things in turn, `size` at once."""
    for start in range(0, len(things), size):
        yield things[start : start + size]
