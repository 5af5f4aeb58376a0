"""Jobs that run alike with klamm's source in this process's Spark, and with Spark's own connector in another process.

As a program (`python -m tests.spark.jobs`, in the environment of Spark's own connector) it reads a job per line and
prints its result as a line. It imports nothing but pyspark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.spark.patience import patiently

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Job = Mapping[str, Any]
BOUND_S = 300


def run(spark: SparkSession, job: Job) -> Any:
    """The result of a job as JSON: rows, batches of rows, or the word "refused"."""
    return {"read": read, "stream": stream, "write": write}[job["kind"]](spark, job)


def read(spark: SparkSession, job: Job) -> Any:
    """The rows of a batch query, by partition and offset."""
    try:
        return rows_of(spark.read.format(job["format"]).options(**job["options"]).load())
    except Exception:  # error texts differ
        return "refused"


def stream(spark: SparkSession, job: Job) -> Any:
    """The rows of each batch of a stream that reads the available records."""
    batches: dict[str, Any] = {}

    def keep(frame: DataFrame, number: int) -> None:
        batches[str(number)] = rows_of(frame)

    writer = spark.readStream.format(job["format"]).options(**job["options"]).load().writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True)
    try:
        if not patiently(lambda: writer.start().awaitTermination(BOUND_S)):
            return "too slow"
    except Exception:  # error texts differ
        return "refused"
    # Empty batches are ignored.
    return [batches[number] for number in sorted(batches, key=int) if batches[number]]


def write(spark: SparkSession, job: Job) -> Any:
    """Writes the rows of a query."""
    writer = spark.sql(job["query"]).write.format(job["format"]).mode("append")
    writer.options(**job["options"]).save()
    return "written"


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """All columns of all rows, with names, sorted."""
    rows = [{name: plain(value) for name, value in row.asDict(recursive=True).items()} for row in frame.collect()]
    return [list(row.items()) for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))]


def plain(value: Any) -> Any:
    """As JSON values."""
    match value:
        case bytes() | bytearray():
            return value.hex()
        case list():
            return [plain(one) for one in value]
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case None | int() | str():
            return value
        case _:
            return str(value)


def main() -> None:
    """Serve jobs with Spark's own connector, whose jars are in the given folder."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        print(json.dumps(run(session, json.loads(line))), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
