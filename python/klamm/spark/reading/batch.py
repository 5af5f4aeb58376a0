"""A batch query: offsets are fixed by the plan, and each task reads a range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from klamm.spark.cluster_view import ClusterView
from klamm.spark.ranges.filters import push
from klamm.spark.ranges.narrowing import Narrowing
from klamm.spark.ranges.offsets import OffsetRange, plan_batch, split
from klamm.spark.ranges.range_partition import RangePartition
from klamm.spark.ranges.sampling import cut_large
from klamm.spark.reading.data_loss import report_loss

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from klamm.spark.options.options import SourceOptions


class KlammBatchReader(DataSourceReader):
    """Plans in the driver and reads in the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        """A task per partition, or more with minPartitions, maxRecordsPerPartition and maxBytesPerPartition."""
        view = ClusterView(self.options)
        try:
            ranges = self._narrowed(view, self._planned(view))
        finally:
            view.close()
        pieces = split(
            cut_large(self.options, ranges), tasks_min=self.options.tasks_min, rows_max=self.options.task_rows_max
        )
        return [RangePartition(piece, view.topic_ids.get(piece.partition.topic)) for piece in pieces]

    def _planned(self, view: ClusterView) -> list[OffsetRange]:
        options = self.options
        partitions = view.partitions()
        start = view.at(options.starting_option, options.starting, partitions)
        end = view.at(options.ending_option, options.ending, partitions)
        latest = view.latest()
        earliest = view.earliest(partitions)
        here = partitions & latest.keys() & earliest.keys()
        plan = plan_batch({one: start[one] for one in here}, {one: end[one] for one in here}, earliest, latest)
        report_loss(plan.lost, options.fail_on_data_loss)
        return plan.ranges

    def _narrowed(self, view: ClusterView, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges reduced by filters; all without filters."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of a range in the columns of the schema."""
        # If there is nothing to read, Spark creates a partition without a range.
        if isinstance(partition, RangePartition):
            from klamm.spark.reading.reader import read_range

            yield from read_range(self.options, self.schema, partition.range, partition.topic_id)


class KlammFilteringReader(KlammBatchReader):
    """Reads less if the query's filters allow it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply the filters of topic, partition, offset and timestamp; returns the others."""
        return list(push(filters, self.narrowing))

    def _narrowed(self, view: ClusterView, ranges: list[OffsetRange]) -> list[OffsetRange]:
        kept = self.narrowing.apply(ranges, {})
        timestamp_ms = self.narrowing.timestamp_start_ms
        if timestamp_ms is None or not kept:
            return kept
        partitions = {one.partition for one in kept}
        starts = view.from_timestamp(timestamp_ms, partitions)
        # A partition without a record at or after the timestamp is not read.
        return self.narrowing.apply([one for one in kept if one.partition in starts], starts)
