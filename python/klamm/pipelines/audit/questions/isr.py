"""Who left and entered ISRs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit


def isr_changes(audit: Audit) -> DataFrame:
    """A row for each broker that a record took out of a partition's ISR or put into it.

    topic, topic_id, partition, offset, epoch, timestamp, broker; change: `left` (it stays a replica: an ISR shrinks),
    `entered` (an ISR expands), `removed` (it left the replicas as well: a reassignment, not a fault). Creation,
    deletion and what a snapshot begins with are no changes. An unclean election changes the ISR, too, and is counted.
    """
    from pyspark.sql import functions as f

    rows = audit.history.where(f.col("event") == "changed").withColumn("gone", f.array_except("isr_before", "isr"))
    changes = {
        "left": "array_intersect(gone, replicas)",
        "removed": "array_except(gone, replicas)",
        "entered": "array_except(isr, isr_before)",
    }
    each = [f"transform({ids}, id -> struct(id as broker, '{change}' as change))" for change, ids in changes.items()]
    places = ("topic", "topic_id", "partition", "offset", "epoch", "timestamp")
    found = rows.select(*places, f.expr(f"explode(concat({', '.join(each)})) as found"))
    return found.select(*places, "found.broker", "found.change")


def isr_churn(audit: Audit) -> DataFrame:
    """A row for each broker: how often ISRs lost and gained it.

    broker; shrinks (it left an ISR and stayed a replica), expands (it entered one), removed (with its replica);
    partitions (how many are concerned), first_time and last_time.
    """
    from pyspark.sql import functions as f

    counts = [
        f.count_if(f.col("change") == change).alias(name)
        for change, name in (("left", "shrinks"), ("entered", "expands"), ("removed", "removed"))
    ]
    return (
        isr_changes(audit)
        .groupBy("broker")
        .agg(
            *counts,
            f.count_distinct("topic_id", "partition").alias("partitions"),
            f.min("timestamp").alias("first_time"),
            f.max("timestamp").alias("last_time"),
        )
    )
