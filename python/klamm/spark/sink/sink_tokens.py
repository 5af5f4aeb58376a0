"""The tokens that tasks of an exactly-once stream write with their rows, and how the next attempt uses them. Pure.

A token is an offset that the task's transaction commits. The offset is the number of the micro-batch; its metadata
contains the rest. So the token exists if and only if the rows do. Each task has its own group. The newest token of all
tasks is also in a group of the query, so that one request shows whether a batch was started.

1. A task whose token exists writes nothing. It counts its rows again: a plan that gives it other rows than the first
   time gave those of the first time to other tasks, or to none.
2. A task without a token, in a batch of which an earlier run has committed anything, writes its rows and leaves the
   transaction open. The driver commits it after all tasks have reported, and only if their rows are the same.
3. A task of a batch that no earlier run started commits itself. There is nothing to compare it with.
4. A token of a later batch than the task's means that the checkpoint is older than the written data: the query fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
_RUN: Final = "spark.jobGroup.id"
PROPERTIES: Final = (_QUERY, _RUN, BATCH)
"""The local properties of a task that identify it."""
_NAMED_MAX: Final = 3
_WAY_OUT: Final = (
    "Write that batch with deliveryGuarantee=at-least-once, which may repeat records, or start with "
    "another checkpoint and topic"
)


class DeliveryError(Exception):
    """A batch cannot be written exactly once; the message states the cause and the way out."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identifies a task within an attempt of a query."""

    query: str
    """From the checkpoint: the same after a restart."""
    run: str
    """The id of this start of the query."""
    batch: int
    partition: int

    def name(self, prefix: str) -> str:
        """Its transactional id, and the group of its token.

        Both are the same for every attempt of every batch, so that the newest attempt fences all others.
        """
        return name_of_task(prefix, self.query, self.partition)


def name_of_task(prefix: str, query: str, partition: int) -> str:
    """See `TaskIdentity.name`."""
    return f"{prefix}-{query}-{partition}"


def name_of_query(prefix: str, query: str) -> str:
    """The group with the newest token."""
    return f"{prefix}-{query}"


def identify(properties: Mapping[str, str | None], partition: int) -> TaskIdentity:
    """From a task's local properties, which Spark sets for every job of a micro-batch."""
    query, run, batch = (properties.get(name) for name in PROPERTIES)
    if query is None or run is None or batch is None:
        raise DeliveryError(
            "option 'deliveryGuarantee' ('exactly-once') needs a query of micro-batches: Spark gave the task no "
            f"{_QUERY}, {BATCH} or {_RUN}. Say at-least-once"
        )
    return TaskIdentity(query, run, int(batch), partition)


@dataclass(frozen=True, slots=True)
class Rows:
    """The number of rows, and a checksum of their content."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.count + other.count, (self.digest + other.digest) % 2**64)


@dataclass(frozen=True, slots=True)
class Token:
    """The token that one task committed with its rows."""

    batch: int
    partition: int
    run: str
    rows: Rows

    def metadata(self) -> str:
        """Everything but the batch."""
        fields = {
            "task": self.partition,
            "run": self.run,
            "rows": self.rows.count,
            "digest": f"{self.rows.digest:016x}",
        }
        return json.dumps(fields)


@dataclass(frozen=True, slots=True)
class GroupTokens:
    """The tokens of a group."""

    token: Token | None = None
    """The newest committed token."""
    is_open: bool = False
    """Whether an open transaction may commit another one."""


def read_tokens(group: str, committed: Iterable[tuple[str, int, int | None, str]]) -> GroupTokens:
    """From the offsets of a group: topic, partition, offset, metadata."""
    tokens, is_open = [], False
    for _topic, _partition, offset, metadata in committed:
        if offset is None:
            is_open = True
            continue
        try:
            fields = json.loads(metadata)
            rows = Rows(int(fields["rows"]), int(fields["digest"], 16))
            tokens.append(Token(offset, int(fields["task"]), str(fields["run"]), rows))
        except (ValueError, TypeError, KeyError):
            raise DeliveryError(
                f"group '{group}' has an offset without the token of a Spark query ({metadata!r:.80}): another client "
                "commits there. Set the option transactionalIdPrefix"
            ) from None
    return GroupTokens(max(tokens, key=lambda token: token.batch, default=None), is_open)


class TaskAction(Enum):
    """How a task handles its rows."""

    COMMIT = auto()
    """Write and commit them."""
    PREPARE = auto()
    """Write them, and leave the commit to the driver."""
    COMPARE = auto()
    """Only count them: they are already written."""
    WAIT = auto()
    """Wait: the outcome of another transaction is not known yet."""


def choose(task: TaskIdentity, own: GroupTokens, of_query: GroupTokens, may_wait: bool) -> TaskAction:
    """The action of a task, after no earlier attempt of it can commit any more.

    If not `may_wait`, there is no time left to wait for open transactions, and they count as committed.
    """
    newest = max((found.token.batch for found in (own, of_query) if found.token), default=task.batch)
    if newest > task.batch:
        raise DeliveryError(
            f"batch {task.batch} of query {task.query} would be written, but batch {newest} was written already: "
            f"the checkpoint is older than the topic's contents, or another query runs with a copy of it. {_WAY_OUT}"
        )
    if own.token is not None and own.token.batch == task.batch:
        return TaskAction.COMPARE
    if of_query.token is not None and of_query.token.batch == task.batch:
        # A task of this run read the tokens before it committed, and found none of another run.
        return TaskAction.COMMIT if of_query.token.run == task.run else TaskAction.PREPARE
    if of_query.is_open:
        return TaskAction.WAIT if may_wait else TaskAction.PREPARE
    return TaskAction.COMMIT


@dataclass(frozen=True, slots=True)
class Report:
    """A task's report to the driver."""

    task: TaskIdentity
    rows: Rows
    action: TaskAction
    there: Token | None = None
    """The token of an earlier attempt."""


def check_replay(reports: Sequence[Report], beyond: Iterable[Token]) -> None:
    """Raise DeliveryError if a batch does not give each task the rows that an earlier attempt of it wrote.

    `beyond`: tokens of tasks that the batch does not have.
    """
    batch, query = reports[0].task.batch, reports[0].task.query
    different = []
    for report in reports:
        if report.there is not None and report.rows != report.there.rows:
            before, after = report.there.rows.count, report.rows.count
            others = ", others" if before == after else ""
            different.append(f"task {report.task.partition} wrote {before} rows before, and {after}{others} now")
    for token in beyond:
        if token.batch == batch:
            text = f"task {token.partition} wrote {token.rows.count} rows, and does not exist now"
            different.append(text)
    if different:
        more = f" (and {len(different) - _NAMED_MAX} more)" if len(different) > _NAMED_MAX else ""
        raise DeliveryError(
            f"batch {batch} of query {query} differs from what an earlier attempt wrote in part: "
            f"{'; '.join(different[:_NAMED_MAX])}{more}. Nothing more of it was written. Exactly once needs a plan "
            "that gives each task the same rows again: no rand() or uuid() without a seed, as many partitions as "
            f"before, a source that can be read again. {_WAY_OUT}"
        )
