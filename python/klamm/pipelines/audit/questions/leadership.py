"""How leadership moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.pipelines.audit.questions.unclean import is_unclean, move_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit


def leadership(audit: Audit) -> DataFrame:
    """Every record by which a partition has another leader than before, or none, or one again.

    topic, topic_id, partition, offset, epoch, timestamp; from_leader and to_leader (null: none); leader_epoch_before
    and leader_epoch; kind: `moved` (from one to another), `lost` (to none) or `regained` (from none); is_preferred
    (the new one is the first replica); is_unclean (see `unclean_elections`). A partition's first leader moved nowhere,
    a leader epoch that goes up with the same leader is no move, and neither is a deletion.
    """
    from pyspark.sql import functions as f

    rows = audit.history.where(f.col("event") == "changed")
    rows = rows.where(~f.col("leader").eqNullSafe(f.col("leader_before")))
    kind = f.when(f.col("leader").isNull(), "lost").when(f.col("leader_before").isNull(), "regained").otherwise("moved")
    return rows.select(
        *move_columns(),
        "leader_epoch_before",
        "leader_epoch",
        kind.alias("kind"),
        f.coalesce(f.col("leader") == f.get("replicas", f.lit(0)), f.lit(False)).alias("is_preferred"),
        is_unclean().alias("is_unclean"),
    )
