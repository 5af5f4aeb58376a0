"""Unclean elections: leaders that may lack records which were acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from klamm.pipelines.audit.audit import Audit


def is_unclean() -> Column:
    """Of a row of the history: whether its leader was elected uncleanly."""
    from pyspark.sql import functions as f

    is_new = f.col("leader").isNotNull() & ~f.col("leader").eqNullSafe(f.col("leader_before"))
    was_eligible = f.array_contains("isr_before", f.col("leader")) | f.array_contains("elr_before", f.col("leader"))
    is_recovering = f.col("leader_recovery_state") == 1
    begins_to_recover = is_recovering & (f.col("leader_recovery_state_before") != 1)
    # One who joins the ISR by a reassignment can lead by the same record, and lacks nothing.
    is_added = f.array_contains("adding_replicas_before", f.col("leader")) & ~is_recovering
    unclean = (is_new & ~was_eligible & ~is_added) | begins_to_recover
    return (f.col("event") == "changed") & f.coalesce(unclean, f.lit(False))


def move_columns() -> list[Column]:
    """Of a change of leaders: where and when, from whom to whom."""
    from pyspark.sql import functions as f

    places = ("topic", "topic_id", "partition", "offset", "epoch", "timestamp")
    return [*map(f.col, places), f.col("leader_before").alias("from_leader"), f.col("leader").alias("to_leader")]


def unclean_elections(audit: Audit) -> DataFrame:
    """Every record that elects a leader which was neither in the ISR nor in the ELR, or says so itself.

    That is: the new leader is in neither of the two as they were before the record; or the record sets the leader
    recovery state to RECOVERING, as a controller does with an unclean election (KIP-704). A replica that is being
    added may enter the ISR and lead by one record, which is clean unless the state says otherwise.

    topic, topic_id, partition, offset, epoch, timestamp; from_leader (null: there was none), to_leader; leader_epoch;
    isr_before, elr_before: who had all that was acknowledged; is_recovering (the record, or one before it, says so);
    recovered_offset and recovered_time: of the next record by which the partition has recovered (null: none).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from klamm.pipelines.audit.partition_history import KEY

    # The next place by offset where the state is not recovering: from the rows behind, counted backwards.
    backwards = Window.partitionBy(*KEY).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)
    recovered = f.when(
        (f.col("leader_recovery_state") == 0) & (f.col("event") != "deleted"), f.struct("offset", "timestamp")
    )
    rows = audit.history.withColumn("recovered", f.last(recovered, ignorenulls=True).over(backwards))
    is_recovering = f.col("leader_recovery_state") == 1
    return rows.where(is_unclean()).select(
        *move_columns(),
        "leader_epoch",
        "isr_before",
        "elr_before",
        is_recovering.alias("is_recovering"),
        f.when(is_recovering, f.col("recovered.offset")).alias("recovered_offset"),
        f.when(is_recovering, f.col("recovered.timestamp")).alias("recovered_time"),
    )
