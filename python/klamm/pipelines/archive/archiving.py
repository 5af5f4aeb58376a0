"""`archive`: the driver's part. It plans the reads and writes of Spark, and commits complete ranges."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.client import ClientError, KafkaClient
from klamm.pipelines.archive.cluster import choose_topics, cluster_id, committed
from klamm.pipelines.archive.manifest import Commit, Range, Topic
from klamm.pipelines.archive.planning import check_same, plan
from klamm.pipelines.archive.running import NO_PROGRESS, Progress, rounds, run_tasks
from klamm.pipelines.archive.store import Store, writing
from klamm.pipelines.archive.writing import WriteTask
from klamm.pipelines.errors import PipelineError
from klamm.pipelines.session import session
from klamm.spark.cluster_view import connect
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import SourceOptions, parse_batch
from klamm.spark.ranges.offsets import EARLIEST, LATEST, OffsetRange, nested, split
from klamm.spark.ranges.sampling import cut_large

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_TASK: Final = 1_000_000
BYTES_PER_TASK: Final = 512 << 20
TASKS_PER_COMMIT: Final = 4
"""Ranges per concurrent task: a killed run loses only the work since the last commit."""
_LOSS: Final = "failOnDataLoss"
"""In the source's error message if retention deleted records before they were read."""
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class Archived:
    """The additions of a run to an archive."""

    topics: tuple[str, ...]
    ranges: tuple[Range, ...]

    @property
    def records(self) -> int:
        """Added records."""
        return sum(one.records for one in self.ranges)

    @property
    def files(self) -> int:
        """Added files."""
        return sum(len(one.files) for one in self.ranges)

    @property
    def bytes(self) -> int:
        """Bytes of the added files."""
        return sum(file.bytes for one in self.ranges for file in one.files)


def archive(
    topics: Sequence[str],
    to: str | Path,
    *,
    bootstrap: str,
    pattern: str | None = None,
    allow_loss: bool = False,
    groups: bool = False,
    records_per_task: int = RECORDS_PER_TASK,
    compression: str = "zstd",
    client: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> Archived:
    """Add to the archive in folder `to` the new records of `topics`, and of topics that match `pattern`.

    Reads the committed records up to the present end of each partition. After a run was killed or failed, calling it
    again continues it. `allow_loss`: continue if retention deleted records before they were archived. `groups`: store
    committed offsets, too. `client`: keys of Kafka's clients. Without `spark` a session is created, with `master`.
    Raises PipelineError, ClientError.
    """
    if compression not in COMPRESSIONS:
        raise PipelineError(f"compression '{compression}' is not known: use one of {', '.join(COMPRESSIONS)}")
    if records_per_task < 1:
        raise PipelineError(f"records_per_task is {records_per_task}: it must be 1 or more")
    keys = {"isolation.level": "read_committed", **(client or {}), "bootstrap.servers": bootstrap}
    with Client(bootstrap, config=keys) as admin:
        chosen = choose_topics(admin, topics, pattern)
        with writing(Path(to).absolute()) as store:
            run = _Run(store, keys, allow_loss, admin, chosen)
            if ranges := run.plan(groups):
                with session("klamm archive", spark=spark, master=master, quiet=spark is None) as running:
                    run.add(running, ranges, records_per_task, compression, progress)
    return Archived(tuple(topic.name for topic in chosen), tuple(run.added))


class _Run:
    """One call of `archive`, with the archive locked."""

    def __init__(
        self, store: Store, keys: Mapping[str, str], allow_loss: bool, admin: Client, topics: Sequence[Topic]
    ) -> None:
        self._store = store
        self._topics = topics
        self._keys = keys
        self._allow_loss = allow_loss
        self._admin = admin
        self._cluster_id = cluster_id(admin)
        self.added: list[Range] = []

    def plan(self, groups: bool) -> list[OffsetRange]:
        """Plan the ranges to read. Commits everything else that must be recorded."""
        topics = self._topics
        for topic in topics:
            check_same(self._store.manifest.topics.get(topic.name), topic.name, topic.topic_id)
        # Before the ends are requested, so that no committed offset is after the archive's end.
        offsets = committed(self._admin, [topic.name for topic in topics]) if groups else None
        ranges: list[OffsetRange] = []
        lost: list[Range] = []
        try:
            with connect(self._keys) as client:
                for topic in topics:
                    earliest, latest = ends(client, topic)
                    found = plan(self._store.manifest, topic.name, earliest, latest, allow_loss=self._allow_loss)
                    ranges += found.ranges
                    lost += found.lost
        except (ClientError, OptionError) as error:
            raise PipelineError(str(error)) from None
        changed = [topic for topic in topics if self._store.manifest.topics.get(topic.name) != topic]
        if changed or lost or offsets:
            self._commit(lost, changed, offsets)
        return ranges

    def add(
        self,
        spark: SparkSession,
        ranges: list[OffsetRange],
        records_per_task: int,
        compression: str,
        progress: Progress,
    ) -> None:
        """Archive the ranges. If retention deletes records and that is allowed, the rest is planned again."""
        while True:
            options = self._options(ranges)
            try:
                pieces = split(cut_large(options, ranges), rows_max=records_per_task)
                self._read(spark, pieces, WriteTask(str(self._store.root), options, compression), progress)
            except (PipelineError, ClientError) as error:
                text = str(error)
                if _LOSS not in text:
                    raise PipelineError(text) from None
                if not self._allow_loss:
                    raise PipelineError(f"{text} (for an archive: --allow-loss, allow_loss=True)") from None
                ranges = self.plan(groups=False)
            else:
                return

    def _read(self, spark: SparkSession, pieces: list[OffsetRange], task: WriteTask, progress: Progress) -> None:
        """Let Spark write the pieces, and commit them round by round."""
        total = sum(piece.size for piece in pieces)
        done = 0
        progress(done, total)
        at_once = max(1, spark.sparkContext.defaultParallelism) * TASKS_PER_COMMIT
        for some in rounds(pieces, at_once):
            try:
                ranges = run_tasks(spark, task, some)
                self._check_same({one.topic for one in ranges})
            except BaseException:  # also Ctrl-C: files that no manifest will list
                self._store.tidy()
                raise
            self._commit(ranges)
            done += sum(piece.size for piece in some)
            progress(done, total)

    def _check_same(self, names: Collection[str]) -> None:
        """Raise PipelineError if a topic was recreated meanwhile: it is unknown which one a task has read."""
        # Brokers close connections that are idle for some minutes.
        self._admin.start_again()
        for topic in topic_admin.topics(self._admin, sorted(names)):
            check_same(self._store.manifest.topics[topic.name], topic.name, topic.topic_id)

    def _options(self, ranges: Sequence[OffsetRange]) -> SourceOptions:
        """The options of the source for these ranges."""
        names = {one.partition: 0 for one in ranges}
        wanted = {topic: list(map(int, numbers)) for topic, numbers in nested(names).items()}
        options = {f"kafka.{key}": value for key, value in self._keys.items()}
        return parse_batch(
            options
            | {
                "assign": json.dumps(wanted),
                "includeHeaders": "true",
                "maxBytesPerPartition": str(BYTES_PER_TASK),
            }
        )

    def _commit(
        self,
        ranges: Sequence[Range],
        topics: Sequence[Topic] = (),
        groups: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None,
    ) -> None:
        time_ms = int(time.time() * 1000)
        self._store.commit(Commit(time_ms, self._cluster_id, tuple(topics), tuple(ranges), groups))
        self.added += ranges


def ends(client: KafkaClient, topic: Topic) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the next offset of each partition."""
    numbers = range(topic.partitions)
    return (
        client.offsets(topic.name, dict.fromkeys(numbers, EARLIEST)),
        client.offsets(topic.name, dict.fromkeys(numbers, LATEST)),
    )
