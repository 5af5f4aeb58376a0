"""Fewer file descriptors than partitions or connections: no record is lost, and no client waits forever."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until


class LimitedNode(NodeProcess):
    """`klamm start` under `ulimit -n`."""

    def __init__(self, data: Path, descriptors: int) -> None:
        super().__init__(data, overrides={"log.segment.delete.delay.ms": "100"})
        self._descriptors = descriptors

    def command(self) -> Sequence[str]:
        return ["sh", "-c", f'ulimit -n {self._descriptors} && exec "$@"', "sh", *super().command()]

    def open_descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def write_everywhere(node: NodeProcess, topics: Sequence[str], partitions: int, value: str) -> None:
    """Produce one record to each partition, with acknowledgement."""
    failed: list[object] = []
    # Idempotent, because a slow machine may cause retries.
    settings = {"enable.idempotence": True, "request.timeout.ms": 120_000, "linger.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": node.bootstrap, **settings})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: e and failed.append(e))
            producer.poll(0)
    assert producer.flush(300) == 0
    assert not failed, failed[:3]


def read_everywhere(node: NodeProcess, topics: Sequence[str], partitions: int) -> dict[tuple[str, int], list[str]]:
    """The values of each partition."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "all", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings)
    found: dict[tuple[str, int], list[str]] = {(topic, n): [] for topic in topics for n in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in found])
    ends = 0
    while ends < len(found):
        message = consumer.poll(60)
        assert message is not None, f"{ends} of {len(found)} partitions were read"
        if message.error() is None:
            found[message.topic(), message.partition()].append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ends += 1
    consumer.close()
    return found


def live_below_the_limit(data: Path, topic_count: int, partitions: int, descriptors: int) -> None:
    node = LimitedNode(data, descriptors)
    topics = [f"topic-{number}" for number in range(topic_count)]
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for topic in topics:  # not in one request, whose number of records is limited
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
        write_everywhere(node, topics, partitions, "first")
        node.kill()
        node.start()
        write_everywhere(node, topics, partitions, "second")
        found = read_everywhere(node, topics, partitions)
        assert {tuple(values) for values in found.values()} == {("first", "second")}
        assert node.open_descriptors() <= descriptors
        assert " ERROR " not in node.log()
        assert node.stop(120) == 0
    finally:
        node.kill()


def test_hundreds_of_partitions_with_fewer_descriptors(tmp_path: Path) -> None:
    live_below_the_limit(tmp_path / "data", 2, 200, 160)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_partitions_with_1024_descriptors(tmp_path: Path) -> None:
    live_below_the_limit(tmp_path / "data", 10, 1000, 1024)


def test_more_connections_than_descriptors(tmp_path: Path) -> None:
    """Existing connections are served, others wait or are closed; once descriptors are free, all are served."""
    node = LimitedNode(tmp_path / "data", 200)
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(30)
        write_everywhere(node, ["t"], 4, "before")
        with contextlib.ExitStack() as connections:

            def connect() -> None:
                connection = connections.enter_context(socket.socket())
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", node.port))

            def is_full() -> bool:
                # If a burst overflows the listen queue, the kernel drops some connections without notice.
                connect()
                return node.open_descriptors() >= 190

            for _ in range(300):
                connect()
            wait_until(is_full)
            assert node.open_descriptors() <= 200
        wait_until(lambda: node.open_descriptors() < 100)
        write_everywhere(node, ["t"], 4, "after")
        found = read_everywhere(node, ["t"], 4)
        assert set(map(tuple, found.values())) == {("before", "after")}
        assert node.stop() == 0
    finally:
        node.kill()
