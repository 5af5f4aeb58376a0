"""One metadata log, and the answers to questions about it, computed in this process or with Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from klamm.client import ClientError
from klamm.metadata.errors import HistoryError
from klamm.pipelines.audit.facts import Extent, Facts
from klamm.pipelines.audit.parts import Part
from klamm.pipelines.audit.plan import Plan, plan
from klamm.pipelines.audit.questions import ASKED_OF_ANSWERS, ASKED_OF_FACTS, HISTORY, QUESTIONS
from klamm.pipelines.audit.questions.answer import table
from klamm.pipelines.audit.reading import RowFilter
from klamm.pipelines.audit.rows import rows_of_answer
from klamm.pipelines.audit.tables import CONTROL_TYPES, RECORD_TYPES, table_name, table_names
from klamm.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_VIEW: Final = "records"
IN_MEMORY_BYTES: Final = 16 << 20
"""Size of a log and its snapshot: some 300,000 records, which this process reads in ten seconds and less than 1 GiB."""
# Little of a log is shuffled: Spark's default of 200 partitions would mostly be empty.
_CONF: Final = {
    "spark.sql.shuffle.partitions": "8",
    # Answers arrive in this process through the JVM.
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
}


class Audit:
    """The answers and tables of one plan. Data is read, and Spark started, only on request.

    `answer` returns Arrow tables; up to `IN_MEMORY_BYTES` it works without Spark. Everything else is a DataFrame of
    Spark, which the first one starts.

    In every table of records, the columns `snapshot`, `offset`, `batch` (its batch's first offset), `epoch` (of the
    quorum) and `timestamp` locate a record. `snapshot` is null for the log's own records; records of a snapshot have
    the offset and the time of the last record that it contains. Ids are text as Kafka writes them; secrets are hidden.
    """

    def __init__(self, plan: Plan, open_session: Callable[[], SparkSession], origin: str | None = None) -> None:
        self.plan: Final = plan
        self.origin: Final = origin or str(plan.path)
        """The origin of the log, for messages."""
        self._open_session = open_session
        self._answers: dict[str, pa.Table] = {}
        self._frames: dict[str, DataFrame] = {}
        self._facts = Facts(self._base, plan.log, self._extent)

    @cached_property
    def spark(self) -> SparkSession:
        """The session, which is started if there is none."""
        from klamm.pipelines.audit.source import MetadataSource, QuestionSource

        session = self._open_session()
        session.dataSource.register(MetadataSource)
        session.dataSource.register(QuestionSource)
        return session

    # Records

    def records(self) -> DataFrame:
        """Every record of the log and its snapshots, including raft's own.

        Beside the columns of every table: type (Kafka's name), control (raft's own), version, topic_id, partition and
        broker (null where the record names none), fields (JSON). A record of an unknown type is there with its bytes.
        """
        return self._scan(self._everything, RowFilter())

    def overview(self) -> DataFrame:
        """Like `records` without the fields: of each record only its type and the entities that it names."""
        return self._scan(self._everything, RowFilter(with_fields=False))

    def table(self, name: str) -> DataFrame:
        """The records of one type with a typed column for each field, such as `table("PartitionChangeRecord")`.

        Values are as they were written: -2 as a leader is no change, and so does null as an ISR. PipelineError: no such
        type.
        """
        name = table_name(name)
        if name in RECORD_TYPES:
            return self._scan(self._everything, RowFilter(record_type=RECORD_TYPES[name]))
        from pyspark.sql import functions as f

        control, columns = CONTROL_TYPES[name]
        rows = self._scan(self._everything, RowFilter(controls=(control,)))
        places = rows.select("snapshot", "offset", "batch", "epoch", "timestamp", "fields")
        if columns is None:
            return places.drop("fields")
        parsed = places.withColumn("parsed", f.from_json("fields", columns))
        return parsed.select("snapshot", "offset", "batch", "epoch", "timestamp", "parsed.*")

    @staticmethod
    def table_names() -> list[str]:
        """The names that `table` accepts."""
        return table_names()

    def counts(self) -> dict[str, int]:
        """The number of records of each type in the log without the snapshot, the most frequent first."""
        return self._facts.counts()

    def create_views(self, query: str | None = None) -> list[str]:
        """Create temporary views for `spark.sql`: `records`, per record type and per question. Returns their names.

        With a query only those whose names are words in it: Spark asks a Python process about each view.
        """
        views: dict[str, Callable[[], DataFrame]] = {RECORDS_VIEW: self.records}
        views |= {name: partial(self.table, name) for name in table_names()}
        views |= {question: partial(self.ask, question) for question in QUESTIONS}
        words = None if query is None else set(re.findall(r"\w+", query.lower()))
        names = [name for name in views if words is None or name.lower() in words]
        for name in names:
            views[name]().createOrReplaceTempView(name)
        return names

    # Questions

    def answer(self, question: str) -> pa.Table:
        """The answer to a question by name, cached. PipelineError lists the names."""
        _check_name(question)
        if question not in self._answers:
            self._answers[question] = self._work_out(question)
        return self._answers[question]

    def _work_out(self, question: str) -> pa.Table:
        if question in ASKED_OF_ANSWERS:
            derived = ASKED_OF_ANSWERS[question]
            return table(
                derived.columns, derived.rows(*(rows_of_answer(self.answer(one)) for one in derived.questions))
            )
        if self.fits_in_memory:
            return ASKED_OF_FACTS[question].answer(self._facts)
        return self.ask(question).toArrow()

    def ask(self, question: str) -> DataFrame:
        """The same as a DataFrame. PipelineError lists the names."""
        _check_name(question)
        if question not in self._frames:
            self._frames[question] = self._frame(question)
        return self._frames[question]

    def _frame(self, question: str) -> DataFrame:
        if question in ASKED_OF_ANSWERS or self.fits_in_memory:
            from pyspark.sql.pandas.types import from_arrow_schema

            found = self.answer(question)
            return self.spark.createDataFrame(found, from_arrow_schema(found.schema))
        from klamm.pipelines.audit.source import QUESTION_FORMAT, DistributedQuestion

        share_of = -(-self.size_bytes // IN_MEMORY_BYTES)
        shares = max(self.spark.sparkContext.defaultParallelism, share_of)
        shares = shares if ASKED_OF_FACTS[question].is_of_topics else 1
        distributed = DistributedQuestion(question, self._base, self.plan.log, self._extent, shares)
        return self.spark.read.format(QUESTION_FORMAT).options(**distributed.as_options()).load().persist()

    @property
    def size_bytes(self) -> int:
        """The input of the questions."""
        return sum(piece.size_bytes for part in (*self._base, *self.plan.log) for piece in part.pieces)

    @property
    def fits_in_memory(self) -> bool:
        """Whether this process computes answers without Spark."""
        return self.size_bytes <= IN_MEMORY_BYTES

    def partition_history(self) -> DataFrame:
        """Every state of every partition; see `klamm.pipelines.audit.questions.history`."""
        return self.ask(HISTORY)

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

    def topic_changes(self) -> DataFrame:
        """When topics were created, grew and were deleted; see `...questions.topics`."""
        return self.ask("topic_changes")

    def incidents(self) -> DataFrame:
        """What went wrong, by cause and time; see `...questions.incidents`."""
        return self.ask("incidents")

    def close(self) -> None:
        """Release cached data."""
        for frame in self._frames.values():
            frame.unpersist()
        self._frames.clear()
        self._answers.clear()

    @property
    def _extent(self) -> Extent:
        return Extent(self.plan.base_end, self.plan.withheld, self.plan.end_time_ms)

    @property
    def _base(self) -> tuple[Part, ...]:
        return next((parts for parts in self.plan.snapshots if parts[0].snapshot == self.plan.base), ())

    @property
    def _everything(self) -> tuple[Part, ...]:
        return (*(part for parts in self.plan.snapshots for part in parts), *self.plan.log)

    def _scan(self, parts: tuple[Part, ...], wanted: RowFilter) -> DataFrame:
        """The rows that are `wanted`."""
        from klamm.pipelines.audit.source import FORMAT, options_of

        return self.spark.read.format(FORMAT).options(**options_of(parts, wanted)).load()


def _check_name(question: str) -> None:
    if question not in QUESTIONS and question != HISTORY:
        raise PipelineError(f"there is no question '{question}': use one of {', '.join(QUESTIONS)}")


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
    Where Spark is needed, a session that is given or active is used, else one is made for as long as the block lasts.
    PipelineError.
    """
    if (source is None) == (bootstrap_controller is None):
        raise PipelineError("an audit needs either a directory or controllers (bootstrap_controller)")
    with _folder_of(source, bootstrap_controller, client) as folder, ExitStack() as stack:
        audit = Audit(
            planned(folder),
            lambda: stack.enter_context(_session(spark, quiet)),
            bootstrap_controller and f"the controllers at {bootstrap_controller}",
        )
        stack.callback(audit.close)
        yield audit


def _session(spark: SparkSession | None, quiet: bool) -> Any:
    from klamm.pipelines.session import session

    return session("klamm audit", spark=spark, conf=_CONF, quiet=quiet)


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
