"""What a task of an exactly-once stream leaves with its rows, and what the next attempt makes of it. Pure.

A token is an offset that the task's transaction commits, whose number is that of the micro-batch and whose metadata has
the rest. So it is there if and only if the rows are. Each task has a group for its own; the newest of all tasks is in a
group of the query, too, so that one look tells whether a batch was begun.

1. A task whose token is there writes nothing. It counts its rows again, because a plan that gives it other rows than
   the first time gave those of the first time to other tasks, or to none.
2. A task without one, in a batch of which an earlier run has committed anything, writes its rows and leaves the
   transaction open: the driver commits it when all tasks have reported, and only if their rows are the same.
3. A task of a batch that no earlier run began commits itself. Nothing that it could be compared with is there.
4. A token of a later batch than the task's means that the checkpoint is older than what was written: nothing helps.
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
"""Of a task's local properties those that say which task of what it is."""
_NAMED_MAX: Final = 3
_WAY_OUT: Final = (
    "Let that batch be written with deliveryGuarantee=at-least-once, which repeats what is there, or start with "
    "another checkpoint and topic"
)


class DeliveryError(Exception):
    """A batch cannot be written exactly once; the text says why, and the way out."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which part of which attempt of a query a task is."""

    query: str
    """Of the checkpoint: the same after a restart."""
    run: str
    """Of this start of the query."""
    batch: int
    partition: int

    def name(self, prefix: str) -> str:
        """Its transactional id, and the group of its token: the same for every attempt of whatever batch, so that the
        newest fences all others."""
        return name_of_task(prefix, self.query, self.partition)


def name_of_task(prefix: str, query: str, partition: int) -> str:
    """As `TaskIdentity.name`."""
    return f"{prefix}-{query}-{partition}"


def name_of_query(prefix: str, query: str) -> str:
    """The group that has the newest token."""
    return f"{prefix}-{query}"


def identify(properties: Mapping[str, str | None], partition: int) -> TaskIdentity:
    """Of a task's local properties, which Spark sets for every job of a micro-batch."""
    query, run, batch = (properties.get(name) for name in PROPERTIES)
    if query is None or run is None or batch is None:
        raise DeliveryError(
            "option 'deliveryGuarantee' ('exactly-once') needs a query of micro-batches: Spark gave the task no "
            f"{_QUERY}, {BATCH} or {_RUN}. Say at-least-once"
        )
    return TaskIdentity(query, run, int(batch), partition)


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows there were, and a sum over what is in them."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.count + other.count, (self.digest + other.digest) % 2**64)


@dataclass(frozen=True, slots=True)
class Token:
    """What one task committed with its rows."""

    batch: int
    partition: int
    run: str
    rows: Rows

    def metadata(self) -> str:
        """All but the batch."""
        said = {"task": self.partition, "run": self.run, "rows": self.rows.count, "digest": f"{self.rows.digest:016x}"}
        return json.dumps(said)


@dataclass(frozen=True, slots=True)
class Found:
    """What a group has."""

    token: Token | None = None
    """The newest that is committed."""
    is_open: bool = False
    """A transaction that has not ended may bring another one."""


def read_tokens(group: str, committed: Iterable[tuple[str, int, int | None, str]]) -> Found:
    """Of the offsets of a group: topic, partition, offset, metadata."""
    tokens, is_open = [], False
    for _topic, _partition, offset, metadata in committed:
        if offset is None:
            is_open = True
            continue
        try:
            said = json.loads(metadata)
            rows = Rows(int(said["rows"]), int(said["digest"], 16))
            tokens.append(Token(offset, int(said["task"]), str(said["run"]), rows))
        except (ValueError, TypeError, KeyError):
            raise DeliveryError(
                f"group '{group}' has an offset that is no token of a Spark query ({metadata!r:.80}): something else "
                "commits there. Set the option transactionalIdPrefix"
            ) from None
    return Found(max(tokens, key=lambda token: token.batch, default=None), is_open)


class TaskAction(Enum):
    """What a task does with its rows."""

    COMMIT = auto()
    """Write and commit them."""
    PREPARE = auto()
    """Write them, and leave the end to the driver."""
    COMPARE = auto()
    """Only count them: they are there."""
    WAIT = auto()
    """Nothing yet: what others did is not decided."""


def choose(task: TaskIdentity, own: Found, of_query: Found, patient: bool) -> TaskAction:
    """What to do, once no earlier attempt of the same task can commit any more.

    `patient` when there is time to wait for what is not decided; else it is held for possible.
    """
    newest = max((found.token.batch for found in (own, of_query) if found.token), default=task.batch)
    if newest > task.batch:
        raise DeliveryError(
            f"batch {task.batch} of query {task.query} is to be written, and batch {newest} has been: the checkpoint "
            f"is older than what is in the topic, or another query runs with a copy of it. {_WAY_OUT}"
        )
    if own.token is not None and own.token.batch == task.batch:
        return TaskAction.COMPARE
    if of_query.token is not None and of_query.token.batch == task.batch:
        # One of this run has looked before it committed, and found none of another.
        return TaskAction.COMMIT if of_query.token.run == task.run else TaskAction.PREPARE
    if of_query.is_open:
        return TaskAction.WAIT if patient else TaskAction.PREPARE
    return TaskAction.COMMIT


@dataclass(frozen=True, slots=True)
class Report:
    """A task's report to the driver."""

    task: TaskIdentity
    rows: Rows
    course: TaskAction
    there: Token | None = None
    """What an earlier attempt left."""


def check_replay(reports: Sequence[Report], beyond: Iterable[Token]) -> None:
    """Refuse a batch that does not give each task the rows that an earlier attempt of it wrote. DeliveryError.

    `beyond`: tokens of tasks that the batch does not have.
    """
    batch, query = reports[0].task.batch, reports[0].task.query
    different = []
    for report in reports:
        if report.there is not None and report.rows != report.there.rows:
            before, after = report.there.rows.count, report.rows.count
            others = ", others" if before == after else ""
            different.append(f"task {report.task.partition} wrote {before} rows, and has {after}{others} now")
    for token in beyond:
        if token.batch == batch:
            text = f"task {token.partition} wrote {token.rows.count} rows, and there is no such task now"
            different.append(text)
    if different:
        more = f" (and {len(different) - _NAMED_MAX} more)" if len(different) > _NAMED_MAX else ""
        raise DeliveryError(
            f"batch {batch} of query {query} is not what it was when an earlier attempt wrote a part of it: "
            f"{'; '.join(different[:_NAMED_MAX])}{more}. Nothing more of it was written. Exactly once needs a plan "
            "that gives each task the same rows again: no rand() or uuid() without a seed, as many partitions as "
            f"before, a source that can be read again. {_WAY_OUT}"
        )
