"""Every state of every partition, from the records that create, change and remove it: what most questions look at.

A PartitionRecord says all of a partition, a PartitionChangeRecord what changes: what it leaves out (null, -2 as a
leader, -1 as a recovery state) stays. A leader in it, even the same, counts the leader epoch up, and each change the
partition epoch (facts 1.2). RemoveTopicRecord ends the partitions of its topic; ClearElrRecord empties the ELRs of one
topic or of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from klamm.pipelines.audit.audit import Audit

NO_LEADER: Final = -1
_NO_CHANGE: Final = -2
KEY: Final = ("topic_id", "partition")
_PLACE: Final = ("snapshot", "offset", "batch", "epoch", "timestamp")
_LISTS: Final = ("replicas", "isr", "adding_replicas", "removing_replicas")
_ELRS: Final = ("eligible_leader_replicas", "last_known_elr")
_STATE: Final = ("leader", *_LISTS, "elr", "last_known_elr", "leader_recovery_state", "leader_epoch")


def partition_history(audit: Audit) -> DataFrame:
    """A row for each record that says something of a partition, in no order.

    topic (null: its name is cleaned away), topic_id, partition; offset, batch, epoch, timestamp of the record; event:
    `snapshot` (the state that a snapshot begins with), `created`, `changed`, `elr cleared` or `deleted`; the state
    behind it: leader (null: none), leader_epoch, partition_epoch, replicas, isr, adding_replicas, removing_replicas,
    elr, last_known_elr, leader_recovery_state (1: recovering from an unclean election); and the state before it, under
    the same names with `_before`, null where there was none. A deleted partition has no leader; its other columns are
    those it had.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_offset = Window.partitionBy(*KEY).orderBy("offset")
    upto = by_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def known(name: str) -> Column:
        return f.last(name, ignorenulls=True).over(upto)

    rows = _events(audit)
    rows = rows.select(
        *KEY,
        *_PLACE,
        "event",
        *(known(name).alias(name) for name in (*_LISTS, "elr", "last_known_elr", "leader_recovery_state")),
        known("leader").alias("leader"),
        (known("leader_epoch") + f.sum(f.col("counts_leader_epoch").cast("int")).over(upto))
        .cast("int")
        .alias("leader_epoch"),
        known("partition_epoch").alias("first_partition_epoch"),
    )
    rows = rows.withColumn("leader", f.when((f.col("leader") >= 0) & (f.col("event") != "deleted"), f.col("leader")))
    rows = rows.withColumns({f"{name}_before": f.lag(name).over(by_offset) for name in _STATE})
    # A record that clears what is clear already changes nothing.
    had_elr = (f.size("elr_before") > 0) | (f.size("last_known_elr_before") > 0)
    rows = rows.where((f.col("event") != "elr cleared") | had_elr)
    is_change = f.col("event").isin("changed", "elr cleared")
    changes = f.sum(is_change.cast("int")).over(upto)
    rows = rows.withColumn("partition_epoch", (f.col("first_partition_epoch") + changes).cast("int"))
    return rows.drop("first_partition_epoch").join(topics(audit), "topic_id", "left")


def topics(audit: Audit) -> DataFrame:
    """topic_id and topic (its name) of every topic that there was."""
    return audit.facts("TopicRecord").selectExpr("topic_id", "name as topic").distinct()


def topic_ends(audit: Audit) -> DataFrame:
    """topic_id and the place of the record that removed the topic."""
    return audit.facts("RemoveTopicRecord").select("topic_id", *_PLACE)


def _events(audit: Audit) -> DataFrame:
    """What records say, with null for what they do not: lists, leader and its recovery state, first epochs."""
    from pyspark.sql import functions as f

    created = audit.facts("PartitionRecord").withColumn(
        "event", f.when(f.col("snapshot").isNotNull(), "snapshot").otherwise("created")
    )
    nothing = f.array().cast("array<int>")
    created = created.withColumns({name: f.coalesce(name, nothing) for name in _ELRS})
    changed = audit.facts("PartitionChangeRecord").withColumn("event", f.lit("changed"))
    changed = changed.withColumn("leader", f.when(f.col("leader") != _NO_CHANGE, f.col("leader")))
    changed = changed.withColumn("counts_leader_epoch", f.col("leader").isNotNull())
    changed = changed.withColumn("leader_recovery_state", f.expr("nullif(leader_recovery_state, -1)"))
    rows = created.withColumn("counts_leader_epoch", f.lit(False)).unionByName(changed, allowMissingColumns=True)
    rows = rows.withColumnsRenamed({"partition_id": "partition", "eligible_leader_replicas": "elr"})
    numbers = ("leader", "leader_recovery_state", "leader_epoch", "partition_epoch", "counts_leader_epoch")
    rows = rows.select(*KEY, *_PLACE, "event", *_LISTS, "elr", "last_known_elr", *numbers)
    each = (
        audit.facts("PartitionRecord").selectExpr("topic_id", "partition_id as partition", "offset as born").distinct()
    )
    ends = each.join(topic_ends(audit), "topic_id").where("offset > born").withColumn("event", f.lit("deleted"))
    cleared = _cleared(audit, each).withColumn("event", f.lit("elr cleared"))
    cleared = cleared.withColumn("elr", nothing).withColumn("last_known_elr", nothing)
    more = ends.drop("born").unionByName(cleared, allowMissingColumns=True)
    return rows.unionByName(more, allowMissingColumns=True)


def _cleared(audit: Audit, partitions: DataFrame) -> DataFrame:
    """Partitions and the place of each record that cleared their ELR while they were there."""
    clears = audit.facts("ClearElrRecord").select("topic_name", *_PLACE)
    ends = topic_ends(audit).selectExpr("topic_id", "offset as died")
    living = partitions.join(topics(audit), "topic_id").join(ends, "topic_id", "left")
    # Of one topic and of all apart: a join by name stays one, however many topics and clears there are.
    of_one = living.join(clears.withColumnRenamed("topic_name", "topic"), "topic")
    of_all = living.crossJoin(clears.where("topic_name = ''"))
    found = of_one.select(*KEY, *_PLACE, "born", "died").unionByName(of_all.select(*KEY, *_PLACE, "born", "died"))
    return found.where("offset > born and (died is null or offset < died)").select(*KEY, *_PLACE)
