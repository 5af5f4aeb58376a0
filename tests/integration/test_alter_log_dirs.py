"""Partitions move between the log directories of a broker while clients use them (AlterReplicaLogDirs, KIP-113)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from klamm.admin.client import Client
from klamm.admin.configs import alter
from klamm.admin.topics import create
from klamm.cli.main import run
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
)
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

PARTITIONS = 3


class Node:
    """A node with three log directories and a topic."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / name for name in ("one", "two", "three")]
        settings = {"log.dirs": ",".join(map(str, self.folders)), "log.segment.bytes": str(1 << 20)}
        self.process = NodeProcess(folder / "data", overrides=settings)

    def client(self) -> Client:
        return Client(self.process.bootstrap)

    def id(self, client: Client) -> int:
        (broker,) = client.metadata([]).brokers
        return broker.node_id

    def alter(self, wanted: Mapping[int, Path | str], topic: str = "t") -> list[ErrorCode]:
        dirs = tuple(
            AlterReplicaLogDir(str(path), (AlterReplicaLogDirTopic(topic, (index,)),)) for index, path in wanted.items()
        )
        with self.client() as client:
            answer = client.any.ask(AlterReplicaLogDirsRequest(dirs), AlterReplicaLogDirsResponse, 2)
        return [one.error_code for result in answer.results for one in result.partitions]

    def described(self) -> list[LogDir]:
        with self.client() as client:
            return list(client.any.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse, 5).results)

    def where(self, topic: str = "t") -> dict[int, Path]:
        """The directory of each partition, without future replicas."""
        return {
            one.partition_index: Path(found.log_dir)
            for found in self.described()
            for part in found.topics
            if part.name == topic
            for one in part.partitions
            if not one.is_future_key
        }

    def futures(self) -> list[tuple[int, Path]]:
        rows = ((found, one) for found in self.described() for part in found.topics for one in part.partitions)
        return [(one.partition_index, Path(found.log_dir)) for found, one in rows if one.is_future_key]

    def wait_for(self, wanted: Mapping[int, Path]) -> None:
        wait_until(lambda: not self.futures() and self.where().items() >= wanted.items(), bound_s=120)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    with node.process:
        with node.client() as client:
            create(client, ["t"], partitions=PARTITIONS)
        yield node


class Load:
    """An idempotent producer of numbered records; the offsets of acknowledged ones are recorded."""

    def __init__(self, node: Node, bytes_each: int = 500) -> None:
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self._stop = threading.Event()
        self._bytes = bytes_each
        self._producer = Producer(
            {"bootstrap.servers": node.process.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            index = number % PARTITIONS
            value = str(number).encode().rjust(self._bytes)
            with contextlib.suppress(BufferError):
                self._producer.produce("t", value, partition=index, on_delivery=self._noted(index, number))
                number += 1
            self._producer.poll(0.0005)

    def _noted(self, index: int, number: int) -> Callable[..., None]:
        def note(error: object, message: object) -> None:
            assert error is None, error
            self.acked[index][number] = message.offset()  # type: ignore[attr-defined]

        return note

    def count(self) -> int:
        return sum(map(len, self.acked))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(120) == 0


def consumed(node: Node, ends: list[int]) -> list[dict[int, int]]:
    """The offset of each number, by partition."""
    config = {"bootstrap.servers": node.process.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(config | {"auto.offset.reset": "earliest", "log_level": 0})
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    seen = [0] * PARTITIONS
    while any(at < end for at, end in zip(seen, ends, strict=True)):
        message = consumer.poll(60)
        assert message is not None, (seen, ends)
        assert message.error() is None, message.error()
        index, number = message.partition(), int(message.value())
        assert number not in found[index], f"{number} is there twice"
        assert message.offset() == seen[index], "an offset is missing"
        found[index][number] = message.offset()
        seen[index] += 1
    consumer.close()
    return found


def assert_nothing_lost(node: Node, load: Load) -> None:
    ends = [max(acked.values(), default=-1) + 1 for acked in load.acked]
    found = consumed(node, ends)
    for have, acked in zip(found, load.acked, strict=True):
        assert acked.items() <= have.items()


def test_partitions_move_under_load(node: Node) -> None:
    load = Load(node)
    try:
        for round_ in range(3):
            before = load.count()
            wait_until(lambda before=before: load.count() > before + 300, bound_s=60)
            wanted = {index: node.folders[(index + round_) % 3] for index in range(PARTITIONS)}
            assert node.alter(wanted) == [ErrorCode.NONE] * PARTITIONS
            node.wait_for(wanted)
    finally:
        load.stop()
    assert_nothing_lost(node, load)
    for index, folder in node.where().items():
        assert [path.name for path in folder.glob(f"t-{index}")] == [f"t-{index}"]
        others = [found for found in node.folders if found != folder]
        assert not any((found / f"t-{index}").exists() for found in others)


def test_a_killed_process_continues_its_move(node: Node) -> None:
    load = Load(node, bytes_each=5000)
    try:
        wait_until(lambda: load.count() > 3000, bound_s=120)
        for round_ in range(3):
            wanted = {index: node.folders[(index + round_ + 1) % 3] for index in range(PARTITIONS)}
            assert node.alter(wanted) == [ErrorCode.NONE] * PARTITIONS
            node.process.kill()
            node.process.start()
            node.wait_for(wanted)
    finally:
        load.stop()
    assert_nothing_lost(node, load)


def test_a_move_back_cancels_it(node: Node) -> None:
    load = Load(node)
    wait_until(lambda: load.count() > 300, bound_s=60)
    before = node.where()
    elsewhere = {index: next(found for found in node.folders if found != path) for index, path in before.items()}
    node.alter(elsewhere)
    assert node.alter(before) == [ErrorCode.NONE] * PARTITIONS
    load.stop()
    # Partitions that have been moved are moved back.
    node.wait_for(before)
    assert_nothing_lost(node, load)


def test_errors_are_apache_kafkas(node: Node) -> None:
    [one, *_] = node.folders
    assert node.alter({0: "/nowhere"}) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert node.alter({7: one}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.alter({0: one}, "u") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.alter({0: one}, "t" * 249) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_cordoned_directories_get_no_new_partition(node: Node) -> None:
    one, two, three = node.folders
    with node.client() as client:
        alter(client, "broker", str(node.id(client)), {"cordoned.log.dirs": f"{one},{two}"})
    wait_until(lambda: [found.is_cordoned for found in node.described()] == [True, True, False], bound_s=60)
    assert node.alter({0: one}) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    with node.client() as client:
        create(client, ["new"], partitions=4)
    assert set(node.where("new").values()) == {three}


def test_commands_show_and_move(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    with node.client() as client:
        broker = node.id(client)
    before = node.where()
    to = next(folder for folder in node.folders if folder != before[0])
    bootstrap = ("--bootstrap", node.process.bootstrap)
    assert run(["topics", "move-dir", "t", "--to", str(to), "--partition", "0", "--wait", *bootstrap]) == 0
    assert node.where() == before | {0: to}
    assert run(["topics", "dirs", "t", "--json", *bootstrap]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["broker"], one["path"]) for one in found] == [(broker, str(folder)) for folder in node.folders]
    assert [[each["partition"] for each in one["replicas"]] for one in found] == [
        sorted(index for index, path in node.where().items() if path == folder) for folder in node.folders
    ]
    assert run(["topics", "dirs", *bootstrap]) == 0
    assert str(to) in capsys.readouterr().out
    assert run(["topics", "move-dir", "t", "--to", "/nowhere", *bootstrap]) == 1
    assert "no broker has the log directory /nowhere" in capsys.readouterr().err
