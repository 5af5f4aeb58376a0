"""The program that one side of `klamm bench spark` runs: jobs come in a line each, and their times go out.

It is started by its path, also in an environment that has nothing but pyspark, so it imports nothing else at its top.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_BYTES = 10


def main() -> None:
    """Print the versions, then run jobs from stdin. The argument is the configuration of the session."""
    started = json.loads(sys.argv[1])
    session = _session(started["config"])
    if started["format"] == "klamm":
        from klamm.spark.source import KlammDataSource

        session.dataSource.register(KlammDataSource)
    if started["format"] == "engine":
        from klamm.pipelines.bench import engine_floor

        engine_floor.register(session)
    _say({"spark": session.version, "java": _java_version(session)})
    for line in sys.stdin:
        try:
            _say(run(session, json.loads(line)))
        except Exception as error:  # of many kinds, Java's among them
            _say({"error": str(error)})
    session.stop()


def run(session: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job: its duration in seconds, and its number of rows if Spark reports it."""
    began = time.monotonic()
    rows = {"count": count, "read": read, "stream": stream, "write": write}[job["kind"]](session, job)
    return {"seconds": time.monotonic() - began, "rows": rows}


def count(session: SparkSession, job: dict[str, Any]) -> int:
    """The number of rows; also warms up what a first query loads."""
    return int(session.read.format(job["format"]).options(**job["options"]).load().count())


def read(session: SparkSession, job: dict[str, Any]) -> None:
    """Every column of every row, to nowhere."""
    frame = session.read.format(job["format"]).options(**job["options"]).load()
    frame.write.format("noop").mode("overwrite").save()


def stream(session: SparkSession, job: dict[str, Any]) -> int:
    """A new query catches up with all there is."""
    frame = session.readStream.format(job["format"]).options(**job["options"]).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", job["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def write(session: SparkSession, job: dict[str, Any]) -> None:
    """Write rows that Spark generates to a topic."""
    made = rows(session, job["records"], job["record_bytes"], job["tasks"])
    made.write.format(job["format"]).options(**job["options"]).mode("append").save()


def rows(session: SparkSession, records: int, record_bytes: int, tasks: int) -> DataFrame:
    """Records of `record_bytes`: a key that is a number, and a value that ends with it."""
    value_bytes = record_bytes - KEY_BYTES
    key = f"lpad(cast(id as string), {KEY_BYTES}, '0')"
    frame = session.range(0, records, 1, tasks).selectExpr(f"{key} as key")
    return frame.selectExpr("key", f"concat('{'v' * (value_bytes - KEY_BYTES)}', key) as value")


def _session(config: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("klamm bench spark")
    for name, value in config.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _java_version(session: SparkSession) -> str:
    jvm: Any = session.sparkContext._jvm
    return str(jvm.java.lang.System.getProperty("java.version"))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
