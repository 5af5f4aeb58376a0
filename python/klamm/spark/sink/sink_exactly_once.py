"""Writes the rows of a stream's micro-batch exactly once, in Kafka transactions.

`sink_tokens` decides; this module executes: in a task (`write_once`), then in the driver (`finish`, `give_up`), which
receives the tasks' results from Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from klamm._engine.client import ClientError, KafkaClient, NoTransactionsError
from klamm.spark.cluster_view import TASK_REFUSED_MS, connect, first_contact
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.sink_options import SinkOptions
from klamm.spark.sink.sink_tokens import (
    BATCH,
    PROPERTIES,
    DeliveryError,
    GroupTokens,
    Report,
    Rows,
    TaskAction,
    TaskIdentity,
    Token,
    check_replay,
    choose,
    identify,
    name_of_query,
    name_of_task,
    read_tokens,
)

if TYPE_CHECKING:
    import pyarrow as pa

Portions = Iterable[tuple[str, "pa.RecordBatch"]]
"""Rows with their topic."""
_DECIDED_WITHIN_S: Final = 2.0
"""How long to wait for transactions of other tasks. They end within milliseconds, unless their task died."""
_POLL_S: Final = 0.05
_BEYOND: Final = 32


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction with all rows of a task, which the driver ends."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class Delivered(WriterCommitMessage):
    """A task's result for the driver."""

    report: Report
    open: Open | None = None


def check_broker(options: SinkOptions) -> None:
    """Raise OptionError if brokers do not support transactions, ClientError if none can be reached."""
    with connect(first_contact(options.client, TASK_REFUSED_MS)) as client:
        try:
            client.check_transactions(options.transactional_id_prefix)
        except NoTransactionsError as error:
            raise OptionError(
                f"option 'deliveryGuarantee' ('exactly-once') is not possible with kafka.bootstrap.servers "
                f"'{options.client['bootstrap.servers']}': {error}. Use deliveryGuarantee=at-least-once"
            ) from None


def is_first_batch() -> bool:
    """Whether the task in this process belongs to the first micro-batch of a query."""
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(BATCH) == "0"


def identity_of_task() -> TaskIdentity:
    """The identity of the task in this process."""
    context = TaskContext.get()
    if context is None:
        raise DeliveryError("an exactly-once stream can only be written by Spark tasks")
    return identify({name: context.getLocalProperty(name) for name in PROPERTIES}, context.partitionId())


def write_once(
    options: SinkOptions,
    task: TaskIdentity,
    portions: Portions,
    produce: Callable[[KafkaClient, str, pa.RecordBatch], None],
    digest: Callable[[str, pa.RecordBatch], int],
) -> Delivered:
    """Write the rows of a task, unless an earlier attempt has; they become readable when the batch is committed."""
    name = task.name(options.transactional_id_prefix)
    with connect({**options.client, "transactional.id": name}) as client:
        # Fences earlier attempts and ends their transactions: their tokens are committed by now, or never will be.
        client.init_transactions()
        action, there = _action_of(client, options, task)
        counted = _Counted(portions, digest)
        if action is TaskAction.COMPARE:
            for _ in counted:
                pass
            return Delivered(Report(task, counted.rows, action, there))
        is_open = _write(client, options, task, counted, produce, commit=action is TaskAction.COMMIT)
        identity = client.identity()
        assert identity is not None, "init_transactions() gives one"
        return Delivered(Report(task, counted.rows, action), Open(name, *identity) if is_open else None)


class _Counted:
    """Passes rows on, and counts them."""

    def __init__(self, portions: Portions, digest: Callable[[str, pa.RecordBatch], int]) -> None:
        self._portions = portions
        self._digest = digest
        self.rows = Rows()
        self.topic: str | None = None
        """The first row."""

    def __iter__(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for topic, rows in self._portions:
            if rows.num_rows:
                self.rows += Rows(rows.num_rows, self._digest(topic, rows))
                self.topic = self.topic or topic
                yield topic, rows


def _action_of(client: KafkaClient, options: SinkOptions, task: TaskIdentity) -> tuple[TaskAction, Token | None]:
    own = _find(client, task.name(options.transactional_id_prefix), options.topic)
    of_query = name_of_query(options.transactional_id_prefix, task.query)
    until = time.monotonic() + _DECIDED_WITHIN_S
    while True:
        # Open transactions first: the second request sees those that end in between.
        is_open = _find(client, of_query, options.topic).is_open
        newest = read_tokens(of_query, client.committed(of_query, stable=False)).token
        action = choose(task, own, GroupTokens(newest, is_open), may_wait=time.monotonic() < until)
        if action is not TaskAction.WAIT:
            return action, own.token if action is TaskAction.COMPARE else None
        time.sleep(_POLL_S)


def _find(client: KafkaClient, group: str, topic: str | None) -> GroupTokens:
    return read_tokens(group, client.committed(group, topic))


def _write(
    client: KafkaClient,
    options: SinkOptions,
    task: TaskIdentity,
    counted: _Counted,
    produce: Callable[[KafkaClient, str, pa.RecordBatch], None],
    *,
    commit: bool,
) -> bool:
    """Whether a transaction is left open. Without rows there is none, and no token: there is nothing to repeat."""
    client.begin_transaction()
    try:
        for topic, rows in counted:
            produce(client, topic, rows)
        if counted.topic is None:
            client.commit_transaction()
            return False
        # The rows first, so that the token is pending only briefly for others.
        client.flush()
        token = Token(task.batch, task.partition, task.run, counted.rows)
        prefix = options.transactional_id_prefix
        for group in (task.name(prefix), name_of_query(prefix, task.query)):
            client.add_offsets(group, {counted.topic: {0: task.batch}}, token.metadata())
        if commit:
            client.commit_transaction()
    except BaseException:  # also a task that Spark kills
        with contextlib.suppress(ClientError):  # keep the first error; the next attempt fences the transaction
            client.abort_transaction()
        raise
    return not commit


# ---- the driver ----


def finish(options: SinkOptions, messages: Iterable[Delivered | None]) -> None:
    """All tasks are done: commit the rest of a batch that an earlier attempt started, if its rows are the same."""
    given = [message for message in messages if message is not None]
    if all(message.report.action is TaskAction.COMMIT for message in given):
        return
    with connect(options.client) as client:
        check_replay([message.report for message in given], _beyond(client, options, given[0].report.task, len(given)))
        for message in given:
            if message.open is not None:
                _end(client, message.open, commit=True)


def give_up(options: SinkOptions, messages: Iterable[Delivered | None]) -> None:
    """The batch failed: abort its open transactions. The next attempt fences those that stay open."""
    waiting = [message.open for message in messages if message is not None and message.open is not None]
    if waiting:
        with connect(options.client) as client:
            for one in waiting:
                with contextlib.suppress(ClientError):
                    _end(client, one, commit=False)


def _end(client: KafkaClient, one: Open, *, commit: bool) -> None:
    client.end_transaction_of(one.transactional_id, one.producer_id, one.producer_epoch, commit=commit)


def _beyond(client: KafkaClient, options: SinkOptions, task: TaskIdentity, count: int) -> Iterator[Token]:
    """Tokens of tasks with higher numbers than the batch has, up to a limit, because their number is not recorded."""
    until = time.monotonic() + _DECIDED_WITHIN_S
    for partition in range(count, 2 * count + _BEYOND):
        group = name_of_task(options.transactional_id_prefix, task.query, partition)
        while (found := _find(client, group, options.topic)).is_open:
            if time.monotonic() >= until:
                raise DeliveryError(
                    f"a transaction of an earlier attempt is still open for task {partition}, and this attempt "
                    "has no task with that number: it is aborted after kafka.transaction.timeout.ms. Restart the "
                    "query then"
                )
            time.sleep(_POLL_S)
        if found.token is not None:
            yield found.token
