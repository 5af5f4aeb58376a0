"""A streaming query: continues at the offsets of its checkpoint.

An offset of the stream is the JSON of Spark's own Kafka source, `{"topic": {"0": 23}}`: the next offset of each
partition. An additional key, TOPIC_IDS, identifies topics, so that a topic that was deleted and created again is
detected (KIP-516). A checkpoint without it can be continued, and gets it with the next batch. The end of the first
batch also has INITIAL, with the offsets at which the query started: Spark only stores the ends of batches, and requests
the initial offsets again if the first batch is repeated after a failure. By then `latest` has moved, and the records in
between would be lost silently.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klamm.spark.cluster_view import ClusterView
from klamm.spark.ranges.offsets import (
    Offsets,
    count_rows,
    flat,
    limit_rows,
    nested,
    plan_stream,
    recreated,
    resolve,
    split,
)
from klamm.spark.ranges.range_partition import RangePartition
from klamm.spark.ranges.sampling import cut_large
from klamm.spark.reading.data_loss import report_loss

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from klamm.spark.options.options import SourceOptions

INITIAL: Final = "@initial"
"""Not a valid topic name; nor is the next one."""
TOPIC_IDS: Final = "@ids"

StreamOffset = dict[str, Any]


class KlammStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in the driver, where one reader exists for the whole query, and reads in the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._view: ClusterView | None = None
        self._initial: Offsets | None = None
        self._begun: StreamOffset = {}
        """The same with the ids of the topics."""
        self._latest: Offsets | None = None
        self._topic_ids: dict[str, str] = {}
        """The ids of topics when this reader first saw them, for checkpoints without ids."""
        self._target: Offsets | None = None
        """The end of a query with Trigger.AvailableNow."""
        self._last_trigger: float | None = None

    # ---- in the driver ----

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """The start of a new query; the same for every call."""
        if self._initial is None:
            view = self._cluster()
            partitions = view.partitions()
            wanted = view.at(self.options.starting_option, self.options.starting, partitions)
            self._initial = resolve(wanted, view.earliest(partitions), view.latest())
            self._begun = self._with_ids(nested(self._initial))
        return self._begun

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger, else minOffsetsPerTrigger; no limit of Spark has both, so `_limited` adds the other."""
        if self.options.trigger_rows_max is not None:
            return ReadMaxRows(self.options.trigger_rows_max)
        if self.options.trigger_rows_min is not None:
            return ReadMinRows(self.options.trigger_rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at the current latest offsets."""
        self._target = self._cluster().latest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """The end of the next batch; `start` itself if there is nothing, or not enough, to read."""
        begin = _offsets(start)
        view = self._cluster()
        latest = self._target if self._target is not None else view.latest(begin)
        self._latest = latest
        self._topic_ids = view.topic_ids | self._topic_ids
        known = self._begin_of_new(latest, begin) | begin
        end = self._limited(limit, known, latest)
        if begin == self._initial and INITIAL not in start:
            # Spark stores the first batch even if it is empty.
            return {**self._with_ids(nested(end)), INITIAL: start}
        is_same = end == begin and not recreated(self._ids_before(start), view.topic_ids)
        return start if is_same else self._with_ids(nested(end))

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """The ends of the partitions, for the query's progress."""
        return None if self._latest is None else nested(self._latest)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """The ranges between start and end: a task per partition, or more by the options."""
        start = end.get(INITIAL, start)
        begin, until = _offsets(start), _offsets(end)
        topic_ids = end.get(TOPIC_IDS, {})
        plan = plan_stream(begin, until, self._begin_of_new(until, begin))
        lost = [*recreated(self._ids_before(start), topic_ids), *plan.lost]
        report_loss(lost, self.options.fail_on_data_loss)
        pieces = split(
            cut_large(self.options, plan.ranges), tasks_min=self.options.tasks_min, rows_max=self.options.task_rows_max
        )
        return [RangePartition(piece, topic_ids.get(piece.partition.topic)) for piece in pieces]

    def stop(self) -> None:
        """Close the connections."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = ClusterView(self.options)
        return self._view

    def _ids_before(self, start: StreamOffset) -> dict[str, str]:
        """The ids of the topics with which a batch continues."""
        known: dict[str, str] = start.get(TOPIC_IDS, {})
        return self._topic_ids | known

    def _with_ids(self, offsets: dict[str, dict[str, int]]) -> StreamOffset:
        """The latest offsets requested from the cluster, with the ids of their topics."""
        topic_ids = self._cluster().topic_ids
        found = {topic: topic_ids[topic] for topic in offsets if topic in topic_ids}
        return {**offsets, TOPIC_IDS: found} if found else {**offsets}

    def _begin_of_new(self, offsets: Offsets, known: Offsets) -> Offsets:
        """The earliest offsets of new partitions that still exist."""
        new = offsets.keys() - known.keys()
        if not new:
            return {}
        view = self._cluster()
        return view.earliest(new & view.partitions())

    def _limited(self, limit: ReadLimit, start: Offsets, latest: Offsets) -> Offsets:
        match limit:
            case ReadAllAvailable():
                return latest
            case ReadMinRows():
                return start if self._is_too_early(start, latest) else latest
            case ReadMaxRows(max_rows=rows_max):
                if self._is_too_early(start, latest):
                    return start
                return limit_rows(rows_max, start, latest)
            case _:
                raise ValueError(f"a Kafka source has no limit of the kind {limit!r}")

    def _is_too_early(self, start: Offsets, latest: Offsets) -> bool:
        """Whether to wait for minOffsetsPerTrigger: at most for maxTriggerDelay, and not if the query is to end."""
        rows_min = self.options.trigger_rows_min
        if rows_min is None or self._target is not None:
            return False
        now = time.monotonic()
        last = self._last_trigger
        waited = last is None or (now - last) * 1000 >= self.options.trigger_delay_max_ms
        if not waited and count_rows(start, latest) < rows_min:
            return True
        self._last_trigger = now
        return False

    # ---- in the tasks ----

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of a range, in the columns of the schema."""
        from klamm.spark.reading.reader import read_range

        assert isinstance(partition, RangePartition)
        return read_range(self.options, self.schema, partition.range, partition.topic_id)


def _offsets(offset: StreamOffset) -> Offsets:
    return flat({topic: partitions for topic, partitions in offset.items() if not topic.startswith("@")})
