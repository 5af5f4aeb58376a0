"""Answers summed up by topic and by broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.metadata.moments import iso_text
from klamm.pipelines.audit.findings import Finding

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit


def moving_topics(audit: Audit, limit: int) -> Finding:
    """The topics whose leaders moved most."""
    from pyspark.sql import functions as f

    columns = ("topic", "moves", "partitions", "unclean", "last_time")
    grouped = (
        audit.leadership()
        .groupBy("topic", "topic_id")
        .agg(
            f.count("*").alias("moves"),
            f.count_distinct("partition").alias("partitions"),
            f.count_if("is_unclean").alias("unclean"),
            f.unix_millis(f.max("timestamp")).alias("last_time"),
        )
    )
    found = grouped.orderBy(f.desc("moves"), "topic").limit(limit).select(*columns).collect()
    rows = [(*row[:-1], None if row["last_time"] is None else iso_text(row["last_time"])) for row in found]
    return Finding("leadership", "By topic", grouped.count(), columns, rows, "those with the most moves first")


def fenced_brokers(audit: Audit, limit: int) -> Finding:
    """The brokers that were fenced for longest."""
    from pyspark.sql import functions as f

    columns = ("broker", "last_state", "registrations", "times_fenced", "time_fenced_ms", "longest_ms")
    fenced_ms = f.when(f.col("state") == "fenced", f.col("duration_ms"))
    grouped = (
        audit.broker_states()
        .groupBy("broker")
        .agg(
            f.max_by("state", "from_offset").alias("last_state"),
            f.count_if(f.col("because") == "registered").alias("registrations"),
            f.count_if(f.col("state") == "fenced").alias("times_fenced"),
            f.coalesce(f.sum(fenced_ms), f.lit(0)).alias("time_fenced_ms"),
            f.coalesce(f.max(fenced_ms), f.lit(0)).alias("longest_ms"),
        )
    )
    found = grouped.orderBy(f.desc("time_fenced_ms"), "broker").limit(limit).select(*columns).collect()
    rows = [tuple(row) for row in found]
    return Finding("broker_states", "By broker", grouped.count(), columns, rows, "the longest fenced first")
