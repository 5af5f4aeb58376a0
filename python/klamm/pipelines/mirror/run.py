"""Runs a mirror."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.client import ClientError
from klamm.pipelines.mirror.clusters import Clusters, source_keys
from klamm.pipelines.mirror.groups import Moved, sync_groups
from klamm.pipelines.mirror.options import MirrorError, MirrorOptions, MirrorProgress, TopicProgress
from klamm.pipelines.session import jvm_may_be_gone, session
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from klamm.pipelines.mirror.copying import Copying

Tell = Callable[[MirrorProgress], None]
Until = Callable[[MirrorProgress], bool]
STARTS_MAX: Final = 5
_TOO_LATE: Final = "Python worker failed to connect back"
"""The error of a query whose planner's process did not start within Spark's fixed 10 s."""


def mirror(
    options: MirrorOptions,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    on_progress: Tell | None = None,
    until: Until | None = None,
    quiet: bool = False,
) -> MirrorProgress:
    """Copy topics of one cluster to another, with the offsets of groups: once, or until Ctrl-C or `until`.

    from klamm.pipelines.mirror import MirrorOptions, mirror, topics

    mirror(MirrorOptions("here:9092", "there:9092", "mirror-state", topics(patterns=["orders.*"]), once=True))

    Every record is copied at least once, to the partition of the same number, in order, with key, value, headers and
    timestamp. Killed and started again with the same checkpoint, it writes again what it had begun to write. A group
    that continues at a translated offset may see records again, and misses none. Raises ClientError.

    `spark`, `master`, `conf`, `quiet`: as `klamm.pipelines.session.session` has them.
    """
    with Clusters(options) as clusters:
        clusters.look_after_topics()
        with session("klamm mirror", spark=spark, master=master, conf=conf, quiet=quiet) as running:
            from klamm.pipelines.mirror.copying import Copying
            from klamm.pipelines.mirror.sink import MirrorSink

            running.dataSource.register(MirrorSink)
            copying = Copying(options)
            try:
                copying.prepare()
                return _Run(options, clusters, copying, on_progress or _ignore, until or _never).go(running)
            finally:
                copying.close()


class _Run:
    """The thread that updates topics and groups while Spark copies."""

    def __init__(self, options: MirrorOptions, clusters: Clusters, copying: Copying, tell: Tell, until: Until) -> None:
        self._options = options
        self._clusters = clusters
        self._copying = copying
        self._tell = tell
        self._until = until
        self._groups: dict[str, Moved] = {}
        self._trouble: str | None = None
        self._positions: dict[TopicPartition, int] = {}

    def go(self, spark: SparkSession) -> MirrorProgress:
        """Run until the query ends, or Ctrl-C. Raises ClientError."""
        for attempt in range(STARTS_MAX):
            query = self._start(spark)
            try:
                self._accompany(query)
                failure = query.exception()
            except KeyboardInterrupt:
                if self._options.once:
                    raise
                failure = None
            finally:
                with jvm_may_be_gone():
                    query.stop()
            if failure is None:
                break
            if _TOO_LATE not in str(failure) or attempt + 1 == STARTS_MAX:
                raise self._error(failure) from None
        self._clusters.patiently(self._look_after)
        return self._progress(query)

    def _start(self, spark: SparkSession) -> StreamingQuery:
        options = self._options
        given = {f"kafka.{key}": value for key, value in source_keys(options).items()}
        given |= {
            "subscribePattern": options.topics.regex,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(options.batch_records_max),
            "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        }
        from klamm.pipelines.mirror.writing import READ

        rows = spark.readStream.format("klamm").schema(READ).options(**given).load()
        # A checkpoint of other clusters would contain other offsets.
        folder = posixpath.join(options.checkpoint, f"{self._clusters.source_id}-to-{self._clusters.target_id}")
        writer = rows.writeStream.foreachBatch(self._copying.take).option("checkpointLocation", folder)
        trigger: dict[str, Any] = {"processingTime": f"{options.trigger_s} seconds"}
        return writer.trigger(**({"availableNow": True} if options.once else trigger)).start()

    def _accompany(self, query: StreamingQuery) -> None:
        while query.isActive:
            if self._is_over(query):
                return
            try:
                self._look_after()
                self._trouble = None
            except MirrorError:
                raise
            except ClientError as error:
                # The query has its own timeout; an error that ends it ends the mirror.
                self._trouble = str(error)
                self._clusters.start_again()
            progress = self._progress(query)
            self._tell(progress)
            if self._until(progress):
                return

    def _is_over(self, query: StreamingQuery) -> bool:
        from pyspark.errors import StreamingQueryException

        seconds: Any = self._options.interval_s  # a float, which PySpark accepts but does not declare
        try:
            return bool(query.awaitTermination(seconds))
        except StreamingQueryException:
            return True

    def _look_after(self) -> None:
        clusters, options = self._clusters, self._options
        clusters.look_after_topics()
        clusters.look_after_configs()
        self._copying.forget_what_is_gone(clusters)
        self._copying.learn_ends(clusters)
        if options.groups:
            found = sync_groups(clusters.source, clusters.target, options.groups, self._copying.translate)
            self._groups = {one.group: one.after(self._groups.get(one.group)) for one in found}

    def _progress(self, query: StreamingQuery) -> MirrorProgress:
        clusters = self._clusters
        try:
            lags = self._lags(query)
        except ClientError as error:
            self._trouble, lags = str(error), {}
        topics = tuple(
            TopicProgress(name, clusters.copies[name].name, len(topic.partitions), lags.get(name, 0))
            for name, topic in sorted(clusters.mirrored.items())
        )
        left_out = tuple(sorted(name for name in clusters.left_out if self._options.topics.takes(name)))
        return MirrorProgress(
            clusters.source_id,
            clusters.target_id,
            topics,
            tuple(self._groups.values()),
            self._copying.records,
            left_out,
            self._trouble,
        )

    def _lags(self, query: StreamingQuery) -> dict[str, int]:
        """The lag by topic, in offsets."""
        with jvm_may_be_gone():
            self._positions |= _read_to(query.lastProgress)
        ends = self._clusters.ends()
        begins = self._clusters.begins()
        lags: dict[str, int] = {}
        for place, end in ends.items():
            at = max(self._positions.get(place, 0), self._copying.position(*place), begins[place])
            lags[place[0]] = lags.get(place[0], 0) + max(0, end - at)
        return lags

    def _error(self, failure: Exception) -> ClientError:
        cause = self._copying.failure or failure
        if isinstance(cause, ClientError):
            return cause
        message = reason(cause)
        if "failOnDataLoss" in message:
            message += " (for a mirror: --allow-data-loss, fail_on_data_loss=False)"
        return MirrorError(message)


def _ignore(_: MirrorProgress) -> None:
    """Progress without an observer."""


def _never(_: MirrorProgress) -> bool:
    return False


def _read_to(progress: Any) -> dict[TopicPartition, int]:
    """The offsets that a query's progress reports as done, by topic and partition."""
    if progress is None:
        return {}
    offsets = json.loads(progress["sources"][0]["endOffset"] or "{}")
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        if not topic.startswith("@")
        for number, offset in partitions.items()
    }
