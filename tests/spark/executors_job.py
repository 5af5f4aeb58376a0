"""Reads one topic and writes another on two separate executors: `python -m tests.spark.executors_job ...`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable

from pyspark.sql import Row, SparkSession

from klamm.spark import KlammDataSource


def who_reads(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """The parent process of a task's Python worker, and its number of rows."""
    return [(os.getppid(), sum(1 for _ in rows))]


def main(bootstrap: str, source: str, target: str) -> None:
    """Print which process read what."""
    session = (
        SparkSession.builder.master("local-cluster[2,1,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    session.dataSource.register(KlammDataSource)
    options = {"kafka.bootstrap.servers": bootstrap}
    table = session.read.format("klamm").options(**options, subscribe=source, minPartitions="8").load()
    tasks = table.rdd.mapPartitions(who_reads).collect()
    table.select("key", "value").write.format("klamm").mode("append").options(**options, topic=target).save()
    session.stop()
    print(json.dumps(tasks))


if __name__ == "__main__":
    main(*sys.argv[1:])
