"""One metadata log as Spark tables, and the questions that they answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.admin.connection import ClientError
from klamm.metadata.errors import HistoryError
from klamm.pipelines.audit.parts import Part
from klamm.pipelines.audit.plan import Plan, plan
from klamm.pipelines.audit.tables import CONTROL_TYPES, RECORD_TYPES, table_name, table_names
from klamm.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_VIEW: Final = "records"
FACTS: Final = (
    "TopicRecord",
    "RemoveTopicRecord",
    "PartitionRecord",
    "PartitionChangeRecord",
    "ClearElrRecord",
    "ConfigRecord",
    "RegisterBrokerRecord",
    "UnregisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "FenceBrokerRecord",
    "UnfenceBrokerRecord",
)
"""The record types that questions are asked of."""
# What is left of a log when it is shuffled is small: Spark's 200 tasks would do nothing most of the time.
_CONF: Final = {"spark.sql.shuffle.partitions": "8"}


class Audit:
    """The tables of one plan. Nothing is read before Spark is asked for rows.

    Of every table the columns `snapshot`, `offset`, `batch` (its batch's first offset), `epoch` (of the quorum) and
    `timestamp` say where a record stands. `snapshot` is null for the log's own records; what a snapshot holds stands at
    the last record that it contains, with that record's time. Ids are text as Kafka writes them; secrets are hidden.
    """

    def __init__(self, spark: SparkSession, plan: Plan, origin: str | None = None) -> None:
        from klamm.pipelines.audit.source import MetadataSource

        spark.dataSource.register(MetadataSource)
        self.spark: Final = spark
        self.plan: Final = plan
        self.origin: Final = origin or str(plan.path)
        """Where the log is from, for a person."""
        self._answers: dict[str, DataFrame] = {}

    # Records

    def records(self) -> DataFrame:
        """Every record of the log and its snapshots, raft's own among them.

        Beside the columns of every table: type (Kafka's name), control (raft's own), version, topic_id, partition and
        broker (null where the record names none), fields (JSON). A record of an unknown type is there with its bytes.
        """
        return self._scan(self._everything)

    def overview(self) -> DataFrame:
        """As `records`, without the fields: of each record only what it is and whom it names."""
        return self._scan(self._everything, with_fields=False)

    def table(self, name: str) -> DataFrame:
        """The records of one type with a typed column for each field, such as `table("PartitionChangeRecord")`.

        Values are as they were written: -2 as a leader is no change, null as an ISR likewise. PipelineError: no such
        type.
        """
        return self._table(table_name(name), self._everything)

    @staticmethod
    def table_names() -> list[str]:
        """The names that `table` knows."""
        return table_names()

    def create_views(self, query: str | None = None) -> list[str]:
        """Temporary views for `spark.sql`: `records`, one a record type, one a question. Their names.

        With a query only those whose names are words in it: Spark asks a Python process about each view.
        """
        from klamm.pipelines.audit.questions import QUESTIONS

        views: dict[str, Callable[[], DataFrame]] = {RECORDS_VIEW: self.records}
        views |= {name: partial(self.table, name) for name in table_names()}
        views |= {question: partial(self.ask, question) for question in QUESTIONS}
        words = None if query is None else set(re.findall(r"\w+", query.lower()))
        names = [name for name in views if words is None or name.lower() in words]
        for name in names:
            views[name]().createOrReplaceTempView(name)
        return names

    # Questions

    def ask(self, question: str) -> DataFrame:
        """The answer to a question by its name, kept in Spark's cache. PipelineError lists the names."""
        from klamm.pipelines.audit.questions import QUESTIONS

        if question not in QUESTIONS:
            raise PipelineError(f"there is no question '{question}': use one of {', '.join(QUESTIONS)}")
        if question not in self._answers:
            answer: Callable[[Audit], DataFrame] = QUESTIONS[question]
            self._answers[question] = answer(self).persist()
        return self._answers[question]

    @cached_property
    def history(self) -> DataFrame:
        """Every state of every partition, kept in Spark's cache; see `partition_history`."""
        from klamm.pipelines.audit.partition_history import partition_history

        return partition_history(self).persist()

    def partition_history(self) -> DataFrame:
        """Every state of every partition; see `klamm.pipelines.audit.partition_history`."""
        return self.history

    def leadership(self) -> DataFrame:
        """How leadership moved; see `klamm.pipelines.audit.questions.leadership`."""
        return self.ask("leadership")

    def under_replicated(self) -> DataFrame:
        """Which partitions were under-replicated, and for how long; see `...questions.intervals`."""
        return self.ask("under_replicated")

    def leaderless(self) -> DataFrame:
        """Which partitions had no leader, and for how long; see `...questions.intervals`."""
        return self.ask("leaderless")

    def isr_changes(self) -> DataFrame:
        """Each broker that left or entered an ISR; see `...questions.isr`."""
        return self.ask("isr_changes")

    def isr_churn(self) -> DataFrame:
        """How often each broker did; see `...questions.isr`."""
        return self.ask("isr_churn")

    def config_changes(self) -> DataFrame:
        """Config changes with their before and after; see `...questions.configs`."""
        return self.ask("config_changes")

    def elections(self) -> DataFrame:
        """The quorum's elections and their length; see `...questions.elections`."""
        return self.ask("elections")

    def unclean_elections(self) -> DataFrame:
        """Partitions whose leader was elected uncleanly; see `...questions.unclean`."""
        return self.ask("unclean_elections")

    def broker_states(self) -> DataFrame:
        """When each broker was active, fenced or away; see `...questions.brokers`."""
        return self.ask("broker_states")

    # What the questions are made of

    def facts(self, name: str) -> DataFrame:
        """The records of one of `FACTS` that count: of the snapshot that states begin with, and of the log behind it.

        Without what metadata transactions withheld (KIP-868).
        """
        rows = self._facts.where(f"type = '{name}'")
        return rows.select("snapshot", "offset", "batch", "epoch", "timestamp", f"{name}.*")

    @cached_property
    def _facts(self) -> DataFrame:
        """All that any question asks for, read in one pass and kept in Spark's cache."""
        base_end = self.plan.base_end
        parts = tuple(part for part in self.plan.log if part.end_offset > base_end)
        types = tuple((name, RECORD_TYPES[name]) for name in FACTS)
        rows = self._scan((*self._base_parts(), *parts), types=types)
        rows = rows.where(f"snapshot is not null or offset >= {base_end}")
        for first, last in self.plan.withheld:
            rows = rows.where(f"snapshot is not null or offset not between {first} and {last}")
        return rows.persist()

    def log_records(self, name: str) -> DataFrame:
        """The records of one type of the log alone, from its first on."""
        return self._table(name, self.plan.log)

    def epochs(self) -> DataFrame:
        """For each epoch of the log: first_offset, first_time, last_offset, last_time, records."""
        from pyspark.sql import functions as f

        rows = self._scan(self.plan.log, is_epochs=True)
        return rows.groupBy("epoch").agg(
            f.min("first_offset").alias("first_offset"),
            f.min_by("first_time", "first_offset").alias("first_time"),
            f.max("last_offset").alias("last_offset"),
            f.max_by("last_time", "last_offset").alias("last_time"),
            f.sum("records").alias("records"),
        )

    def counts(self) -> DataFrame:
        """type and records: how many of each type the log alone has."""
        from pyspark.sql import functions as f

        rows = self._scan(self.plan.log, is_counts=True)
        return rows.groupBy("type").agg(f.sum("records").alias("records"))

    def close(self) -> None:
        """Let go of what is cached."""
        for answer in self._answers.values():
            answer.unpersist()
        self._answers.clear()
        for kept in ("history", "_facts"):
            if kept in self.__dict__:
                self.__dict__.pop(kept).unpersist()

    @property
    def _everything(self) -> tuple[Part, ...]:
        return (*(part for parts in self.plan.snapshots for part in parts), *self.plan.log)

    def _base_parts(self) -> tuple[Part, ...]:
        return next((parts for parts in self.plan.snapshots if parts[0].snapshot == self.plan.base), ())

    def _table(self, name: str, parts: tuple[Part, ...]) -> DataFrame:
        if name in RECORD_TYPES:
            return self._scan(parts, record_type=RECORD_TYPES[name])
        from pyspark.sql import functions as f

        control, columns = CONTROL_TYPES[name]
        rows = self._scan(parts, controls=(control,))
        places = rows.select("snapshot", "offset", "batch", "epoch", "timestamp", "fields")
        if columns is None:
            return places.drop("fields")
        parsed = places.withColumn("parsed", f.from_json("fields", columns))
        return parsed.select("snapshot", "offset", "batch", "epoch", "timestamp", "parsed.*")

    def _scan(self, parts: tuple[Part, ...], **wanted: Any) -> DataFrame:
        """The rows that are `Wanted`."""
        from klamm.pipelines.audit.source import FORMAT, Wanted, options_of

        return self.spark.read.format(FORMAT).options(**options_of(parts, Wanted(**wanted))).load()


@contextmanager
def open_audit(
    source: Path | str | None = None,
    *,
    bootstrap_controller: str | None = None,
    client: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    quiet: bool = False,
) -> Iterator[Audit]:
    """The audit of a node's files, or of a live cluster, whose leader's log is copied from its latest snapshot on.

    `source`: a log directory, its `__cluster_metadata-0`, a server.properties, or a snapshot, of klamm or Apache Kafka,
    running or stopped; nothing is locked or changed. `bootstrap_controller`: `host:port,...` of controllers instead,
    `client`: their keys of TLS and SASL.
    A session that is given or active is used, else one is made for as long as the block lasts. PipelineError.
    """
    from klamm.pipelines.session import session

    if (source is None) == (bootstrap_controller is None):
        raise PipelineError("an audit wants either a directory or controllers (bootstrap_controller)")
    with _folder_of(source, bootstrap_controller, client) as folder:
        made = planned(folder)
        with session("klamm audit", spark=spark, conf=_CONF, quiet=quiet) as found:
            audit = Audit(found, made, bootstrap_controller and f"the controllers at {bootstrap_controller}")
            try:
                yield audit
            finally:
                audit.close()


def planned(folder: Path | str) -> Plan:
    """The plan of a folder or a file. PipelineError."""
    try:
        return plan(folder)
    except HistoryError as error:
        raise PipelineError(str(error)) from None


@contextmanager
def _folder_of(
    source: Path | str | None, bootstrap_controller: str | None, client: Mapping[str, str] | None
) -> Iterator[Path | str]:
    if bootstrap_controller is None:
        assert source is not None, "the caller has checked it"
        yield source
        return
    from klamm.admin.metadata_mirror import Mirror

    with Mirror(bootstrap_controller, client) as mirror:
        try:
            mirror.update()
        except ClientError:
            raise
        except HistoryError as error:
            raise PipelineError(str(error)) from None
        yield mirror.directory
