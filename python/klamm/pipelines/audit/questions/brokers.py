"""When brokers were there, fenced and away."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit


def broker_states(audit: Audit) -> DataFrame:
    """The stretches of each broker's life: its fencing history.

    broker; state: `active`, `fenced` (it may lead nothing and be in no ISR), `shutting down` (unfenced, and in its
    controlled shutdown) or `unregistered`; because: `registered`, `fenced`, `unfenced`, `controlled shutdown`,
    `unregistered` or `snapshot`; broker_epoch and incarnation_id of its registration; from_offset, from_epoch (of the
    quorum), from_time; to_offset, to_time (null: open); duration_ms; is_from_snapshot. Each registration begins a
    stretch, even where the broker was fenced before; a record that leaves the state as it is begins none.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from klamm.pipelines.audit.questions.intervals import duration_ms

    by_offset = Window.partitionBy("broker").orderBy("offset")
    upto = by_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = _events(audit)
    known = {
        name: f.last(name, ignorenulls=True).over(upto)
        for name in ("fenced", "shutting_down", "gone", "broker_epoch", "incarnation_id")
    }
    rows = rows.withColumns(known)
    state = (
        f.when(f.col("gone"), "unregistered")
        .when(f.col("fenced"), "fenced")
        .when(f.col("shutting_down"), "shutting down")
        .otherwise("active")
    )
    rows = rows.withColumn("state", state)
    is_new = ~f.col("state").eqNullSafe(f.lag("state").over(by_offset)) | f.col("is_registration")
    rows = rows.withColumn("is_new", is_new).where("is_new")
    because = (
        f.when(f.col("snapshot").isNotNull(), "snapshot")
        .when(f.col("is_registration"), "registered")
        .when(f.col("state") == "active", "unfenced")
        .when(f.col("state") == "shutting down", "controlled shutdown")
        .otherwise(f.col("state"))
    )
    found = rows.select(
        "broker",
        "state",
        because.alias("because"),
        "broker_epoch",
        "incarnation_id",
        f.col("offset").alias("from_offset"),
        f.col("epoch").alias("from_epoch"),
        f.col("timestamp").alias("from_time"),
        f.lead("offset").over(by_offset).alias("to_offset"),
        f.lead("timestamp").over(by_offset).alias("to_time"),
        f.col("snapshot").isNotNull().alias("is_from_snapshot"),
    )
    return found.withColumn("duration_ms", duration_ms(audit))


def _events(audit: Audit) -> DataFrame:
    """What each record says of its broker; null for what it does not say."""
    from pyspark.sql import functions as f

    place = ["snapshot", "offset", "epoch", "timestamp"]
    registered = audit.facts("RegisterBrokerRecord").selectExpr(
        *place,
        "broker_id as broker",
        "fenced",
        "in_controlled_shutdown as shutting_down",
        "false as gone",
        "broker_epoch",
        "incarnation_id",
        "true as is_registration",
    )
    # Fenced: 1 yes, -1 no, 0 as it was; a shutdown only begins (facts 1.2).
    changed = audit.facts("BrokerRegistrationChangeRecord").selectExpr(
        *place,
        "broker_id as broker",
        "case fenced when 1 then true when -1 then false end as fenced",
        "case in_controlled_shutdown when 1 then true end as shutting_down",
    )
    old = [
        audit.facts(name).selectExpr(*place, "id as broker", f"{fenced} as fenced")
        for name, fenced in (("FenceBrokerRecord", "true"), ("UnfenceBrokerRecord", "false"))
    ]
    gone = audit.facts("UnregisterBrokerRecord").selectExpr(*place, "broker_id as broker", "true as gone")
    rows = registered
    for more in (changed, *old, gone):
        rows = rows.unionByName(more, allowMissingColumns=True)
    return rows.withColumn("is_registration", f.coalesce("is_registration", f.lit(False)))
