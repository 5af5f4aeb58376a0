"""Archives topics as Parquet files and restores them: `klamm archive` and `klamm restore`.

    from klamm.pipelines.archive import archive, read_table, restore, verify

    archive(["orders"], "/backup/orders", bootstrap="localhost:9092")
    verify("/backup/orders")
    read_table("/backup/orders", spark).groupBy("topic", "date").count().show()
    restore("/backup/orders", bootstrap="elsewhere:9092", apply=True)

An archive is a folder that every process of Spark sees under one path:

    topic=orders/date=2026-01-31/00003-00000000000000000000-5f2c9a1b.parquet    partition, first offset
    _klamm/commits/00000000000000000001.json                                    the manifest

Spark and pyarrow ignore names that begin with `_` or `.`, so `spark.read.parquet(folder)` reads it, too; but that
guesses the type of topic (`read_table`). The manifest lists its content (`klamm.pipelines.archive.store`).
"""

from __future__ import annotations

from klamm.pipelines.archive.archiving import Archived, archive
from klamm.pipelines.archive.mapping import Mapping
from klamm.pipelines.archive.restoring import Restored, restore
from klamm.pipelines.archive.state import read_mapping
from klamm.pipelines.archive.table import read_table
from klamm.pipelines.archive.targets import TopicPlan
from klamm.pipelines.archive.verifying import Verified, verify

__all__ = [
    "Archived",
    "Mapping",
    "Restored",
    "TopicPlan",
    "Verified",
    "archive",
    "read_mapping",
    "read_table",
    "restore",
    "verify",
]
