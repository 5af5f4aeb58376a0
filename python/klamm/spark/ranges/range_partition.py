"""The range of one task, as Spark sends it from the driver to the task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from klamm.spark.ranges.offsets import OffsetRange


class RangePartition(InputPartition):
    """A range of a partition of one topic, identified by its id."""

    def __init__(self, wanted: OffsetRange, topic_id: str | None = None) -> None:
        super().__init__(wanted)
        self.range = wanted
        self.topic_id = topic_id
