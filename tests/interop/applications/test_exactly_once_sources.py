"""Source connectors of distributed Connect, exactly once (KIP-618), while brokers and workers are killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import confluent_kafka.admin
import pytest

from tests.interop.applications.cluster import (
    PARTITIONS,
    PATIENCE_S,
    Numbers,
    bootstrap,
    committed,
    create_topics,
    while_brokers_die,
)
from tests.interop.applications.processes import ConnectWorker
from tests.support.broker_processes import BrokerProcess, created
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}


class Workers:
    """Two workers; the test kills the one that runs the task."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._all = [ConnectWorker(servers, folder, f"connect-{number}", EXACTLY_ONCE) for number in (1, 2)]
        for worker in self._all:
            worker.start()

    def create(self, name: str, config: dict[str, str]) -> None:
        """Create the connector, and wait until its task is running."""
        required = {"tasks.max": "1", "exactly.once.support": "required"}
        self._all[0].create(name, config | required)
        wait_until(lambda: self._all[0].states(name) == ["RUNNING"], self.log, bound_s=PATIENCE_S)

    def kill_owner(self, name: str) -> None:
        """Kill the worker that runs the task, and restart it."""
        owners: list[ConnectWorker] = []

        def is_found() -> bool:
            owners[:] = [worker for worker in self._all if worker.runs_task_of(name)]
            return bool(owners)

        wait_until(is_found, self.log, bound_s=PATIENCE_S)
        owners[0].kill()
        owners[0].start()

    def log(self) -> str:
        """The end of the output of both."""
        return "\n".join(worker.log()[-4000:] for worker in self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.kill()


def test_connect_copies_every_line_once(brokers: list[BrokerProcess], tmp_path: Path) -> None:
    servers = bootstrap(brokers)
    source = tmp_path / "source.txt"
    source.touch()
    create_topics(servers, lines=1)
    lines = (f"line {number}" for number in itertools.count())
    written: list[str] = []
    pause = threading.Event()

    def write(count: int) -> None:
        """One line at a time, so that there are many transactions, some of them open when a process is killed."""
        with source.open("a", buffering=1) as file:
            for line in itertools.islice(lines, count):
                written.append(line)
                file.write(f"{line}\n")
                pause.wait(0.005)

    def has_all() -> bool:
        return set(committed(servers, "lines", 1)[0]) >= set(written)

    with Workers(servers, tmp_path) as workers:
        connector = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        config = {"connector.class": connector, "file": str(source), "topic": "lines"}
        workers.create("from-file", config)

        def between(number: int) -> None:
            write(500)
            if number > 0:
                workers.kill_owner("from-file")
                write(500)
            wait_until(has_all, workers.log, bound_s=PATIENCE_S)

        while_brokers_die(brokers, between)
        write(500)
        wait_until(has_all, workers.log, bound_s=PATIENCE_S)
    assert committed(servers, "lines", 1)[0] == written, "each line once, in order"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The source cluster, of one node."""
    settings = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
    [files] = created(tmp_path / "source", 1, settings)
    node = BrokerProcess(files)
    node.start(timeout_s=60)
    yield node
    node.kill()


def test_mirror_maker_copies_every_record_once(
    brokers: list[BrokerProcess], source: BrokerProcess, tmp_path: Path
) -> None:
    """MirrorMaker 2 as connectors of a Connect cluster on the target (KIP-382)."""
    servers = bootstrap(brokers)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": source.bootstrap})
    new = confluent_kafka.admin.NewTopic("numbers", PARTITIONS, 1)
    admin.create_topics([new], request_timeout=60)["numbers"].result(60)
    bytes_as_they_are = "org.apache.kafka.connect.converters.ByteArrayConverter"
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "source",
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": servers,
        "source.consumer.isolation.level": "read_committed",
        "consumer.isolation.level": "read_committed",
        "topics": "numbers",
        "sync.topic.acls.enabled": "false",
        "replication.factor": "3",
        "offset-syncs.topic.replication.factor": "1",
        "offset-syncs.topic.location": "source",
        "refresh.topics.interval.seconds": "2",
        "key.converter": bytes_as_they_are,
        "value.converter": bytes_as_they_are,
    }
    with Workers(servers, tmp_path) as workers:
        workers.create("mirror", config)
        numbers = Numbers(source.bootstrap, "numbers")
        try:

            def grows() -> None:
                before = sum(map(len, committed(servers, "source.numbers", PARTITIONS).values()))
                wait_until(
                    lambda: sum(map(len, committed(servers, "source.numbers", PARTITIONS).values())) > before + 200,
                    workers.log,
                    bound_s=PATIENCE_S,
                )

            wait_until(lambda: "source.numbers" in admin_topics(servers), workers.log, bound_s=PATIENCE_S)

            def between(number: int) -> None:
                grows()
                if number == 1:
                    workers.kill_owner("mirror")
                if number == 2:
                    source.kill()
                    source.start(timeout_s=60)
                grows()

            while_brokers_die(brokers, between)
        finally:
            numbers.stop()
        expected = committed(source.bootstrap, "numbers", PARTITIONS)

        def has_all() -> bool:
            found = committed(servers, "source.numbers", PARTITIONS)
            return all(set(found[partition]) >= set(expected[partition]) for partition in expected)

        wait_until(has_all, workers.log, bound_s=PATIENCE_S)
    assert committed(servers, "source.numbers", PARTITIONS) == expected, "each record once, in order"


def admin_topics(servers: str) -> set[str]:
    """The names of the topics."""
    return set(confluent_kafka.admin.AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).topics)
