"""`klamm mirror`: the records on the target, the offsets of groups there, and the result after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import klamm
from klamm.admin import configs
from klamm.admin.client import Client
from klamm.cli.main import run
from klamm.pipelines.mirror import MirrorError, MirrorOptions, MirrorProgress, Naming, groups, mirror, topics
from tests.spark.conftest import REPOSITORY, python_of_workers
from tests.spark.producing import Sent, numbered, send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
BOUND_S = 600
Row = tuple[int, Any, Any, Any, Any]


@pytest.fixture(scope="module")
def there() -> Iterator[klamm.Cluster]:
    """The target cluster."""
    with klamm.Cluster() as running:
        yield running


def rows(bootstrap: str, topic: str) -> dict[int, list[Row]]:
    """Offset, key, value, headers and timestamp of all records, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: dict[int, list[Row]] = {}
    try:
        for number in consumer.list_topics(topic, 60).topics[topic].partitions:
            where = TopicPartition(topic, number, 0)
            begin, end = consumer.get_watermark_offsets(where, 60)
            consumer.assign([where])
            found[number] = []
            while begin < end:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None, message.error()
                begin = (message.offset() or 0) + 1
                row = (message.offset(), message.key(), message.value(), message.headers(), message.timestamp())
                found[number].append(row)  # type: ignore[arg-type]
        return found
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

    def has_committed() -> bool:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR):
                raise
            return False
        return True

    wait_until(has_committed, bound_s=BOUND_S)
    consumer.close()


def values_from(bootstrap: str, group: str, topic: str, count: int) -> set[bytes]:
    """Read as a consumer of the group until there are `count` different values."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error"}
    consumer = Consumer(config)
    found: set[bytes] = set()
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {count} came"
            assert message.error() is None, message.error()
            found.add(message.value() or b"")
        return found
    finally:
        consumer.close()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)


def make(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"} | config)
    admin.create_topics([wanted])[topic].result(60)


def test_a_topic_and_its_groups_are_copied(
    spark: SparkSession, bootstrap: str, there: klamm.Cluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(2)
    make(bootstrap, f"{name}-a", 2, **{"segment.bytes": "2097152", "min.insync.replicas": "2"})
    records = [
        Sent(b"a", b"k", 0, 1_700_000_000_001, (("h", b"v"), ("h", None))),
        Sent(None, b"k", 0, 1_700_000_000_000),
        Sent(b"", None, 0, 1_600_000_000_000),
        *numbered(20, 1),
    ]
    send(bootstrap, f"{name}-a", records)
    commit(bootstrap, f"{name}-readers", f"{name}-a", {0: 2, 1: 13})
    commit(bootstrap, f"{name}-others", f"{name}-a", {0: 1})
    options = MirrorOptions(
        bootstrap,
        there.bootstrap_servers,
        str(tmp_path / "state"),
        topics(patterns=[f"{name}-.*"]),
        groups(names=[f"{name}-readers", "nobody"]),
        Naming("copy."),
        once=True,
    )
    done = mirror(options, spark=spark)
    assert (done.records, done.lag) == (23, 0)
    assert rows(there.bootstrap_servers, f"copy.{name}-a") == rows(bootstrap, f"{name}-a")
    assert there.committed(f"{name}-readers") == {(f"copy.{name}-a", 0): 2, (f"copy.{name}-a", 1): 13}
    assert there.committed(f"{name}-others") == {}
    moved = {one.group: dict(one.offsets) for one in done.groups}
    assert moved == {f"{name}-readers": there.committed(f"{name}-readers")}
    assert name not in there.topics(), "its whole name does not match"
    with Client(there.bootstrap_servers) as client:
        entries = configs.describe(client, "topic", f"copy.{name}-a")
    own = {entry.name: entry.value for entry in entries if entry.source == "set on the topic"}
    assert own == {"retention.ms": "-1", "segment.bytes": "2097152"}

    # More records, a new partition and a new topic. A group with members on the target commits for itself.
    grow(bootstrap, f"{name}-a", 3)
    make(bootstrap, f"{name}-b", 1)
    send(bootstrap, f"{name}-a", [*numbered(5, 1, 20), *numbered(5, 2)])
    send(bootstrap, f"{name}-b", numbered(5))
    commit(bootstrap, f"{name}-readers", f"{name}-a", {0: 3, 1: 25, 2: 4})
    config = {"bootstrap.servers": there.bootstrap_servers, "group.id": f"{name}-readers", "enable.auto.commit": False}
    member = Consumer(config)
    member.subscribe([f"copy.{name}-a"])
    try:
        wait_until(lambda: member.poll(0.1) is None and member.assignment(), bound_s=BOUND_S)
        done = mirror(options, spark=spark)
        assert [group.has_members for group in done.groups] == [True]
        assert there.committed(f"{name}-readers") == {(f"copy.{name}-a", 0): 2, (f"copy.{name}-a", 1): 13}
    finally:
        member.close()
    assert done.records == 15
    for one in (f"{name}-a", f"{name}-b"):
        assert rows(there.bootstrap_servers, f"copy.{one}") == rows(bootstrap, one)


def test_new_records_are_copied_while_it_runs(
    spark: SparkSession, bootstrap: str, there: klamm.Cluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))
    copied = lambda one: sum(map(len, rows(there.bootstrap_servers, one).values()))  # noqa: E731

    def steps() -> Iterator[bool]:
        while copied(name) < 10:
            yield False
        make(bootstrap, f"{name}-new", 1)
        grow(bootstrap, name, 2)
        send(bootstrap, name, numbered(5, 1))
        send(bootstrap, f"{name}-new", numbered(5))
        commit(bootstrap, name, name, {0: 4, 1: 5})
        while copied(name) < 15 or f"{name}-new" not in there.topics() or copied(f"{name}-new") < 5:
            yield False
        while there.committed(name) != {(name, 0): 4, (name, 1): 5}:
            yield False
        yield True

    step = steps()
    progress: list[MirrorProgress] = []
    options = MirrorOptions(
        bootstrap,
        there.bootstrap_servers,
        str(tmp_path),
        topics(patterns=[f"{name}.*"]),
        groups(names=[name]),
        trigger_s=0.1,
        interval_s=0.2,
    )
    mirror(options, spark=spark, on_progress=progress.append, until=lambda _: next(step))
    assert [one.trouble for one in progress if one.trouble] == []
    assert dict(progress[-1].groups[0].offsets) == {(name, 0): 4, (name, 1): 5}, "of all looks together"
    assert rows(there.bootstrap_servers, name) == rows(bootstrap, name)
    assert rows(there.bootstrap_servers, f"{name}-new") == rows(bootstrap, f"{name}-new")


def test_a_topic_that_was_created_again_ends_the_mirror(
    spark: SparkSession, bootstrap: str, there: klamm.Cluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(3))
    chosen = topics(names=[name])
    options = MirrorOptions(bootstrap, there.bootstrap_servers, str(tmp_path), chosen, once=True)
    assert mirror(options, spark=spark).records == 3
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(30)
    make(bootstrap, name, 1)
    send(bootstrap, name, numbered(9, start=3))  # more records than before, so offsets do not reveal it
    with pytest.raises(MirrorError, match=f"topic {name} was deleted and created again .*--allow-data-loss"):
        mirror(options, spark=spark)
    assert mirror(replace(options, fail_on_data_loss=False), spark=spark).lag == 0


@pytest.mark.slow
def test_after_a_kill_no_record_is_missing(
    spark: SparkSession, bootstrap: str, there: klamm.Cluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(2)
    count = 300
    send(bootstrap, name, [one for number in range(2) for one in numbered(count, number, number * count)])
    commit(bootstrap, name, name, {0: 5, 1: 150})
    command = [str(python_of_workers(tmp_path)), "-m", "klamm", "mirror", name, "--from", bootstrap]
    command += ["--to", there.bootstrap_servers, "--checkpoint", str(tmp_path / "state"), "--batch-records", "40"]
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.Popen(
            [*command, "--master", "local[2]"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )
    try:
        begun = lambda: name in there.topics() and len(there.records(name)) > 0  # noqa: E731
        wait_until(lambda: killed.poll() is not None or begun(), bound_s=BOUND_S)
        assert killed.poll() is None, (tmp_path / "log").read_text()
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(60)
    options = MirrorOptions(
        bootstrap,
        there.bootstrap_servers,
        str(tmp_path / "state"),
        topics(names=[name]),
        groups(names=[name]),
        once=True,
    )
    mirror(options, spark=spark)
    source, target = rows(bootstrap, name), rows(there.bootstrap_servers, name)
    for number in range(2):
        # In order, except that a batch may be duplicated.
        first_seen = list(dict.fromkeys(row[1:] for row in target[number]))
        assert first_seen == [row[1:] for row in source[number]]
    wanted = {b"%d" % value for value in [*range(5, count), *range(count + 150, 2 * count)]}
    assert wanted <= values_from(there.bootstrap_servers, name, name, len(wanted))


@pytest.mark.usefixtures("spark")
def test_json_reports_the_groups_that_it_moved(
    bootstrap: str, there: klamm.Cluster, topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(2)
    send(bootstrap, name, [*numbered(20), *numbered(20, 1)])
    commit(bootstrap, name, name, {0: 5, 1: 15})
    places = ("--from", bootstrap, "--to", there.bootstrap_servers, "--checkpoint", str(tmp_path / "state"))
    assert run(["mirror", name, *places, "--group", name, "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["lag"], found["trouble"]) == (40, 0, None)
    moved = [{"topic": name, "partition": partition, "offset": offset} for partition, offset in ((0, 5), (1, 15))]
    assert found["groups"] == [{"group": name, "has_members": False, "moved": moved}]


@pytest.mark.usefixtures("java")
def test_the_command_reports_errors_in_one_line(bootstrap: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "klamm", "mirror", "t", "--from", bootstrap, "--to", bootstrap, "--checkpoint", "s"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert "are one cluster" in done.stderr
    assert done.stderr.count("\n") == 1
