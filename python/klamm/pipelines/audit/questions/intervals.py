"""How long partitions were in a state that nobody wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from klamm.pipelines.audit.audit import Audit


def under_replicated(audit: Audit) -> DataFrame:
    """Every stretch of a partition's life in which its ISR was smaller than its replicas.

    Replicas that a reassignment is adding do not count before it is complete, as in Apache Kafka's metric
    UnderReplicatedPartitions. A stretch begins with the record behind which it is so, and ends with the first behind
    which it is not, or with the topic's deletion; changes of the ISR within are not its end.

    topic, topic_id, partition; from_offset, from_time; to_offset, to_time (null: open); ended: `in sync`, `deleted` or
    null; duration_ms; replicas (how many count, at most); isr_min (the fewest in sync); missing (brokers that were out
    of sync at any time); is_from_snapshot.
    """
    from pyspark.sql import functions as f

    counted = f.array_except("replicas", "adding_replicas")
    rows = audit.history.withColumn("counted", counted)
    is_so = f.size("isr") < f.size("counted")
    found = _stretches(
        audit,
        rows,
        is_so,
        f.max(f.size("counted")).alias("replicas"),
        f.min(f.size("isr")).alias("isr_min"),
        f.array_sort(f.array_distinct(f.flatten(f.collect_list(f.array_except("counted", "isr"))))).alias("missing"),
    )
    return found.withColumn(
        "ended", f.when(f.col("is_deleted"), "deleted").when(f.col("to_offset").isNotNull(), "in sync")
    ).drop("is_deleted")


def leaderless(audit: Audit) -> DataFrame:
    """Every stretch of a partition's life in which it had no leader, so that it took and gave nothing.

    topic, topic_id, partition; from_offset, from_time; to_offset, to_time (null: open); ended: `elected`, `deleted` or
    null; duration_ms; isr (as it was at the end: who could have led); is_from_snapshot.
    """
    from pyspark.sql import functions as f

    found = _stretches(audit, audit.history, f.col("leader").isNull(), f.max_by("isr", "offset").alias("isr"))
    return found.withColumn(
        "ended", f.when(f.col("is_deleted"), "deleted").when(f.col("to_offset").isNotNull(), "elected")
    ).drop("is_deleted")


def _stretches(audit: Audit, rows: DataFrame, is_so: Column, *measures: Column) -> DataFrame:
    """Runs of rows of a partition for which something is so, as intervals."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from klamm.pipelines.audit.partition_history import KEY

    by_offset = Window.partitionBy(*KEY).orderBy("offset")
    rows = rows.withColumn("is_so", is_so & (f.col("event") != "deleted"))
    begins = f.col("is_so") & ~f.coalesce(f.lag("is_so").over(by_offset), f.lit(False))
    rows = rows.withColumn("begins", begins)
    following = {name: f.lead(name).over(by_offset) for name in ("offset", "timestamp", "event")}
    rows = rows.withColumn("following", f.struct(*(column.alias(name) for name, column in following.items())))
    rows = rows.withColumn("number", f.sum(f.col("begins").cast("int")).over(by_offset)).where("is_so")
    last = f.max_by("following", "offset")
    found = rows.groupBy("topic", *KEY, "number").agg(
        f.min("offset").alias("from_offset"),
        f.min_by("timestamp", "offset").alias("from_time"),
        last.alias("last"),
        *measures,
        f.bool_or(f.col("event") == "snapshot").alias("is_from_snapshot"),
    )
    found = found.withColumns(
        {
            "to_offset": f.col("last.offset"),
            "to_time": f.col("last.timestamp"),
            "is_deleted": f.coalesce(f.col("last.event") == "deleted", f.lit(False)),
        }
    )
    return found.withColumn("duration_ms", duration_ms(audit)).drop("number", "last")


def duration_ms(audit: Audit) -> Column:
    """From `from_time` to `to_time`, or to the log's newest timestamp."""
    from pyspark.sql import functions as f

    end = f.timestamp_millis(f.lit(audit.plan.end_time_ms))
    to_time = f.when(f.col("to_offset").isNull(), end).otherwise(f.col("to_time"))
    return f.unix_millis(to_time) - f.unix_millis("from_time")
