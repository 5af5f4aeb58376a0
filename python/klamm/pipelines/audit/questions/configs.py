"""What was configured, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.metadata.fields import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit

_TYPES: Final = {2: "topic", 4: "broker", 16: "client metrics", 32: "group"}


def config_changes(audit: Audit) -> DataFrame:
    """A row for each record that sets or removes a value, and for each value that went with its topic.

    resource_type (`topic`, `broker`, `client metrics`, `group`, else its number), resource_name (empty: the default of
    all brokers), name; offset, epoch, timestamp; before and after (null: not set, so that a default holds); change:
    `set` (there was none), `changed`, `repeated` (to the same), `removed`, `deleted` (with its topic), and `replaced`
    for a secret that was set before, of which nothing says whether it is another. Secrets, and values of keys that
    nobody knows, are "(hidden)". What a snapshot begins with is a before, and no row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ("resource_type", "resource_name", "name")
    place = ("snapshot", "offset", "epoch", "timestamp")
    records = audit.facts("ConfigRecord").select(*key, *place, f.col("value").alias("after"))
    rows = records.withColumn("is_deletion", f.lit(False)).unionByName(_with_topics(audit, records))
    rows = rows.withColumn("before", f.lag("after").over(Window.partitionBy(*key).orderBy("offset")))
    rows = rows.where("snapshot is null and (not is_deletion or before is not null)")
    before, after = f.col("before"), f.col("after")
    change = (
        f.when(f.col("is_deletion"), "deleted")
        .when(after.isNull(), "removed")
        .when(before.isNull(), "set")
        .when((before == HIDDEN) & (after == HIDDEN), "replaced")
        .when(before == after, "repeated")
        .otherwise("changed")
    )
    named = f.col("resource_type").cast("string")
    for number, name in _TYPES.items():
        named = f.when(f.col("resource_type") == number, name).otherwise(named)
    return rows.select(
        named.alias("resource_type"), "resource_name", "name", *place[1:], "before", "after", change.alias("change")
    )


def _with_topics(audit: Audit, records: DataFrame) -> DataFrame:
    """The same of what is deleted with its topic: a null value for each key that the topic ever had."""
    from pyspark.sql import functions as f

    from klamm.pipelines.audit.partition_history import topic_ends, topics

    keys = records.where("resource_type = 2").select("resource_type", "resource_name", "name").distinct()
    ends = topic_ends(audit).join(topics(audit), "topic_id").withColumnRenamed("topic", "resource_name")
    gone = keys.join(ends, "resource_name").select(
        "resource_type", "resource_name", "name", "snapshot", "offset", "epoch", "timestamp"
    )
    return gone.withColumn("after", f.lit(None).cast("string")).withColumn("is_deletion", f.lit(True))
