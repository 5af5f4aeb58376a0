"""Topics kept as Parquet files, and brought back: `klamm archive` and `klamm restore`.

    from klamm.pipelines.archive import archive, restore, verify

    archive(["orders"], "/backup/orders", bootstrap="localhost:9092")
    verify("/backup/orders")
    restore("/backup/orders", bootstrap="elsewhere:9092", apply=True)

An archive is a folder that every process of Spark sees under one path:

    topic=orders/date=2026-01-31/00003-00000000000000000000-5f2c9a1b.parquet    partition, first offset
    _klamm/commits/00000000000000000001.json                                    the manifest

It reads as a table by `spark.read.parquet(folder)`, for Spark passes over what begins with `_` or `.`. What is in it is
what the manifest says (`klamm.pipelines.archive.store`).
"""

from __future__ import annotations

from klamm.pipelines.archive.archiving import Archived, archive
from klamm.pipelines.archive.mapping import Mapping
from klamm.pipelines.archive.restoring import Restored, restore
from klamm.pipelines.archive.state import read_mapping
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
    "restore",
    "verify",
]
