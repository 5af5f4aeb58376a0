"""Copies a topic to another exactly once, and may be killed: `python -m tests.spark.exactly_once_job ...`."""

from __future__ import annotations

import argparse
import os
import signal
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from klamm.spark import KlammDataSource
from tests.spark.patience import patiently

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.types import StructType

    from klamm.spark.sink.sink import KlammStreamWriter


def stream_to(
    spark: SparkSession, kafka: str, source: str, target: str, checkpoint: str, *, rows_per_batch: int = 1_000_000
) -> DataStreamWriter:
    """A stream that reads the available records and preserves the order within partitions."""
    reader = spark.readStream.format("klamm").option("kafka.bootstrap.servers", kafka)
    reader = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows_per_batch))
    writer = reader.load().select("key", "value", "partition").writeStream.format("klamm")
    writer = writer.option("kafka.bootstrap.servers", kafka).option("topic", target)
    writer = writer.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True)


def dying(process_ids: list[int]) -> type[KlammDataSource]:
    """A data source whose sink is killed with the driver when all tasks are done and Spark has not recorded it."""

    class Dying(KlammDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> KlammStreamWriter:  # noqa: N802
            writer = super().streamWriter(schema, overwrite)

            def die(messages: list[object], batch_id: int) -> None:
                for process_id in process_ids:
                    os.kill(process_id, signal.SIGKILL)

            writer.commit = die
            return writer

    return Dying


def main() -> None:
    """Run the stream to its end, or die if requested."""
    parser = argparse.ArgumentParser()
    for name in ("kafka", "source", "target", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rows-per-batch", type=int, default=1_000_000)
    parser.add_argument("--die-in-commit", action="store_true")
    parser.add_argument("--speculation", action="store_true", help="try tasks twice at once, and soon")
    arguments = parser.parse_args()
    session = (
        SparkSession.builder.master(arguments.master)
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.speculation", str(arguments.speculation).lower())
        .config("spark.speculation.interval", "20ms")
        .config("spark.speculation.multiplier", "1.05")
        .config("spark.speculation.quantile", "0.25")
        .config("spark.speculation.minTaskRuntime", "20ms")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    java = int(session._jvm.ProcessHandle.current().pid())
    session.dataSource.register(dying([java, os.getpid()]) if arguments.die_in_commit else KlammDataSource)
    writer = stream_to(
        session,
        arguments.kafka,
        arguments.source,
        arguments.target,
        arguments.checkpoint,
        rows_per_batch=arguments.rows_per_batch,
    )
    patiently(lambda: writer.start().awaitTermination())
    session.stop()


if __name__ == "__main__":
    main()
