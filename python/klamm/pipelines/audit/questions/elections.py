"""The elections of the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit


def elections(audit: Audit) -> DataFrame:
    """Every leader of the quorum that the log knows: the first record of a leader is its LeaderChangeMessage.

    epoch, leader, voters, granting_voters (who voted for it), offset, timestamp (when it began to lead);
    leader_before (null: the log does not have it); epochs_between: epochs that are skipped, of elections that nobody
    won, or whose leader's records were cut or never reached this log; last_offset and last_time: of the last record of
    an earlier epoch; length_ms: from that to the leader's first record, null where nothing is before it.

    What the log tells: for so long nothing was written, by any leader. What it cannot tell: when the old leader died or
    resigned, and when who campaigned. A leader that is idle writes a NoOpRecord every
    metadata.max.idle.interval.ms (500), so the length is at most that much more than the time without a leader. The
    two times are of two machines: where their clocks differ, so does the length, even below zero. Records of the
    log's end may not be committed yet.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    changes = audit.log_records("LeaderChangeMessage").drop("snapshot", "batch")
    epochs = audit.epochs().select("epoch", "last_offset", "last_time")
    # There are few epochs: one task has them all.
    by_epoch = Window.partitionBy(f.lit(0)).orderBy("epoch")
    before = {name: f.lag(name).over(by_epoch) for name in ("last_offset", "last_time")}
    earlier = epochs.withColumns({**before, "epoch_before": f.lag("epoch").over(by_epoch)})
    rows = changes.join(earlier, "epoch").withColumn("leader_before", f.lag("leader_id").over(by_epoch))
    return rows.select(
        "epoch",
        f.col("leader_id").alias("leader"),
        "voters",
        "granting_voters",
        "offset",
        "timestamp",
        "leader_before",
        (f.col("epoch") - f.col("epoch_before") - 1).alias("epochs_between"),
        "last_offset",
        "last_time",
        (f.unix_millis("timestamp") - f.unix_millis("last_time")).alias("length_ms"),
    )
