"""Exactly-once streams on Apache Kafka 4.3.1 and on klamm, after every kind of failure that can be forced."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.client import ClientError, KafkaClient, ProducerFencedError
from tests.spark.conftest import REPOSITORY, python_of_workers
from tests.spark.exactly_once import BOUND_S, Query, committed, make
from tests.spark.exactly_once_job import stream_to
from tests.spark.patience import patiently
from tests.spark.producing import Sent, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(params=["Apache Kafka", "klamm"])
def kafka(request: pytest.FixtureRequest) -> str:
    """The address of a broker."""
    if request.param == "klamm":
        address: str = request.getfixturevalue("bootstrap")
    else:
        address = request.getfixturevalue("secured_kafka").bootstrap
    return address


@pytest.fixture
def target(kafka: str, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions."""
    name = f"{request.node.name.partition('[')[0]}-{abs(hash(request.node.name)) % 10_000}"
    make(kafka, name)
    return name


# Tasks, without Spark's JVM


@pytest.fixture
def query(java: None, kafka: str, target: str) -> Query:
    return Query(kafka, target, target)


def test_a_retried_task_writes_nothing(kafka: str, query: Query) -> None:
    from klamm.spark.sink.sink_tokens import TaskAction

    for batch in range(3):
        task = query.task(0, batch)
        values = [b"%d-%d" % (batch, at) for at in range(3)]
        first, again = query.write(task, *values), query.write(task, *reversed(values))
        assert (first.report.action, again.report.action) == (TaskAction.COMMIT, TaskAction.COMPARE)
        assert first.report.rows == again.report.rows
        query.finish(again)
    assert committed(kafka, query.topic)[0] == [b"%d-%d" % (batch, at) for batch in range(3) for at in range(3)]


def test_a_task_without_rows_leaves_nothing(kafka: str, query: Query) -> None:
    query.finish(query.write(query.task(0)))
    with KafkaClient(kafka) as client:
        assert client.committed(query.task(0).name("klamm-spark")) == []


def test_a_surviving_attempt_is_fenced(kafka: str, query: Query) -> None:
    with query.dies_before_commit(query.task(0), b"old") as zombie:
        query.finish(query.write(query.task(0), b"new"))
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
    assert committed(kafka, query.topic)[0] == [b"new"]


def test_a_batch_of_an_earlier_run_becomes_readable_as_a_whole(kafka: str, query: Query) -> None:
    from klamm.spark.sink.sink_tokens import TaskAction

    query.write(query.task(1), b"b")
    again = [query.write(query.task(at, run="run2"), value) for at, value in enumerate([b"a", b"b", b"c"])]
    assert [message.report.action for message in again] == [TaskAction.PREPARE, TaskAction.COMPARE, TaskAction.PREPARE]
    with KafkaClient(kafka) as all_of_it, KafkaClient(kafka, {"isolation.level": "read_committed"}) as stable:
        assert stable.offsets(query.topic, {0: -1})[0] < all_of_it.offsets(query.topic, {0: -1})[0]
    query.finish(*again)
    assert committed(kafka, query.topic)[0] == [b"b", b"a", b"c"]
    query.finish(query.write(query.task(0, 1, "run2"), b"d"))
    assert committed(kafka, query.topic)[0] == [b"b", b"a", b"c", b"d"]


def test_a_driver_that_dies_while_ending_transactions_has_a_successor(kafka: str, query: Query) -> None:
    query.write(query.task(1), b"b")
    plan = list(enumerate([b"a", b"b", b"c"]))
    second = [query.write(query.task(at, run="run2"), value) for at, value in plan]
    assert second[0].open is not None
    with KafkaClient(kafka) as driver:
        one = second[0].open
        driver.end_transaction_of(one.transactional_id, one.producer_id, one.producer_epoch, commit=True)
    third = [query.write(query.task(at, run="run3"), value) for at, value in plan]
    query.finish(*third)
    assert committed(kafka, query.topic)[0] == [b"b", b"a", b"c"]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([b"a", b"c", b"b"], "task 1 wrote 1 rows before, and 1, others now"),
        ([b"abc"], "task 1 wrote 1 rows, and does not exist now"),
    ],
)
def test_a_plan_with_different_rows_per_task_is_rejected(
    kafka: str, query: Query, plan: list[bytes], message: str
) -> None:
    from klamm.spark.sink.sink_tokens import DeliveryError

    query.write(query.task(1), b"b")
    again = [query.write(query.task(at, run="run2"), value) for at, value in enumerate(plan)]
    with pytest.raises(DeliveryError, match=message):
        query.finish(*again)
    query.give_up(*again)
    assert committed(kafka, query.topic)[0] == [b"b"]


def test_an_unfinished_transaction_is_not_mistaken_for_none(kafka: str, query: Query) -> None:
    """Task 1 of the earlier run may or may not have committed, so only the next driver can end its transaction."""
    from klamm.spark.sink.sink_tokens import DeliveryError, TaskAction

    with query.dies_before_commit(query.task(1), b"b"):
        first = query.write(query.task(0, run="run2"), b"a")
        assert first.report.action is TaskAction.PREPARE
        with pytest.raises(DeliveryError, match="still open for task 1, and this attempt has no task with that number"):
            query.finish(first)
        second = query.write(query.task(1, run="run2"), b"b")
        query.finish(first, second)
    assert sorted(committed(kafka, query.topic)[0]) == [b"a", b"b"]


def test_an_old_checkpoint_is_refused(query: Query) -> None:
    from klamm.spark.sink.sink_tokens import DeliveryError

    query.write(query.task(0, 5), b"x")
    with pytest.raises(DeliveryError, match=r"batch 4 of query .* would be written, but batch 5 was written already"):
        query.write(query.task(0, 4, "run2"), b"y")


def test_a_failure_among_the_rows_leaves_nothing(kafka: str, query: Query) -> None:
    wrong = Query(kafka, query.topic, query.name)
    wrong.options = replace(wrong.options, client={**wrong.options.client, "max.request.size": "100"})
    with pytest.raises(ClientError, match=r"max\.request\.size allows 100"):
        wrong.write(query.task(0), b"small", b"x" * 1000)
    query.finish(query.write(query.task(0), b"small"))
    assert committed(kafka, query.topic)[0] == [b"small"]


def test_a_timeout_above_the_brokers_limit_is_named(kafka: str, query: Query) -> None:
    query.options = replace(query.options, client={**query.options.client, "transaction.timeout.ms": "900001"})
    with pytest.raises(ClientError, match=r"transaction\.timeout\.ms is above the brokers' transaction\.max"):
        query.write(query.task(0), b"x")


# With Spark


def test_a_driver_killed_between_the_transactions_and_spark_s_own_commit(
    spark: SparkSession, kafka: str, target: str, tmp_path: Path
) -> None:
    """The rows are committed, but Spark does not know: it writes the same batch again."""
    source = f"{target}-source"
    make(kafka, source)
    send(kafka, source, [Sent(b"%d" % at, b"%d" % (at % 7), at % 2) for at in range(100)])
    python = str(python_of_workers(tmp_path))
    checkpoint = str(tmp_path / "state")
    job = [python, "-m", "tests.spark.exactly_once_job", kafka, source, target, checkpoint, "--die-in-commit"]
    environment = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    output = tmp_path / "job.out"
    with output.open("wb") as out:  # no pipe: a process that outlives the driver for a while would keep it open
        done = subprocess.run(
            job, cwd=REPOSITORY, env=environment, stdout=out, stderr=out, check=False, timeout=BOUND_S
        )
    assert done.returncode == -signal.SIGKILL, output.read_text()[-4000:]
    first = committed(kafka, target)
    assert sum(len(values) for values in first) == 100
    send(kafka, source, [Sent(b"%d" % at, b"%d" % (at % 7), at % 2) for at in range(100, 110)])

    assert patiently(lambda: stream_to(spark, kafka, source, target, checkpoint).start().awaitTermination(BOUND_S))
    values = [int(value) for partition in committed(kafka, target) for value in partition]
    assert sorted(values) == list(range(110))
