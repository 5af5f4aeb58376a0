"""A disk that is really full, at the start or later: acknowledged records are kept, and the message says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.full_disk import SmallDisk, small_disk, with_mounts
from tests.support.node_process import NodeProcess

VALUE_BYTES = 20_000
NO_SPACE = "No space left on device"


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk | None]:
    """Eight MiB; None if the test has run in another process (tests.support.full_disk)."""
    if not with_mounts(request):
        yield None
        return
    with small_disk(tmp_path / "small", 8) as small:
        yield small


def ended(node: NodeProcess) -> str:
    """The only message of a node that has ended by itself."""
    assert node.wait() == 1, node.log()
    [message] = [line for line in node.log().splitlines() if line.startswith("klamm: ")]
    assert "Traceback" not in node.log()
    return message


def is_of_full_metadata_directory(message: str, directory: Path) -> bool:
    """Whether it names directory and cause once each; it is the same whichever writer finds the disk full first."""
    start = f"klamm: the metadata log's directory {directory} is out of use: cannot "
    return message.startswith(start) and message.count(NO_SPACE) == 1


def create(node: NodeProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    # A node that has ended since the last request does not answer.
    created = admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=20, request_timeout=25)
    created[name].result(30)


def is_created(node: NodeProcess, name: str) -> bool:
    try:
        create(node, name, 1)
    except KafkaException:
        return False
    return True


class Writer:
    """Writes one record at a time without retries, and remembers which were acknowledged."""

    def __init__(self, node: NodeProcess) -> None:
        settings = {"bootstrap.servers": node.bootstrap, "acks": "all", "retries": 0, "log_level": 0}
        self._producer = Producer(settings)
        self._numbers = itertools.count()
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.error: KafkaError | None = None

    def write(self, partition: int) -> KafkaError | None:
        """Write a record; returns the error or None."""
        value = f"{next(self._numbers)}".ljust(VALUE_BYTES, ".")
        self._producer.produce("t", value, partition=partition, on_delivery=self._delivered)
        assert self._producer.flush(30) == 0
        return self.error

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        self.error = error
        if error is None:
            place = (message.partition(), message.offset())  # type: ignore[attr-defined]
            self.acknowledged[place] = message.value().decode()  # type: ignore[attr-defined]


def stored(node: NodeProcess, partition: int) -> dict[tuple[int, int], str]:
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", partition, 0)])
    found: dict[tuple[int, int], str] = {}
    while True:
        message = consumer.poll(30)
        assert message is not None, f"partition {partition} stopped at {len(found)} records"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        found[partition, message.offset()] = message.value().decode()


def test_only_a_full_log_directory_fails(disk: SmallDisk | None, tmp_path: Path) -> None:
    if disk is None:
        return
    small, large = disk.path / "data", tmp_path / "large"
    node = NodeProcess(tmp_path / "node", overrides={"log.dirs": f"{large},{small}"})
    node.start()
    try:
        create(node, "t", 2)
        writer = Writer(node)
        assert [writer.write(partition) for partition in (0, 1)] == [None, None]
        there = 0 if (small / "t-0").exists() else 1
        disk.fill()
        error = next(error for error in (writer.write(there) for _ in range(1000)) if error is not None)
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        # The other directory and the metadata are still served.
        assert writer.write(1 - there) is None
        create(node, "later", 1)
        [line] = [line for line in node.log().splitlines() if "is out of use" in line]
        assert f"ERROR node       log directory {small} is out of use: cannot " in line
        assert NO_SPACE in line
        assert node.stop() == 0
        disk.free()
        node.start()
        for partition in (0, 1):
            expected = {place: value for place, value in writer.acknowledged.items() if place[0] == partition}
            assert expected.items() <= stored(node, partition).items()
        assert Writer(node).write(there) is None
    finally:
        node.kill()


def test_a_full_metadata_directory_ends_the_node(disk: SmallDisk | None, tmp_path: Path) -> None:
    if disk is None:
        return
    data = disk.path / "data"
    overrides = {"metadata.log.dir": str(data), "log.dirs": str(tmp_path / "large")}
    node = NodeProcess(tmp_path / "node", overrides=overrides)
    node.start()
    try:
        names = [f"topic-{number}" for number in range(1000)]
        assert is_created(node, names[0])
        disk.fill()
        made = list(itertools.takewhile(lambda name: is_created(node, name), names[1:]))
        message = ended(node)
        assert is_of_full_metadata_directory(message, data), message
        disk.free()
        node.output.unlink()
        node.start()
        found = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
        assert {names[0], *made} <= found.keys()
        create(node, "goes-on", 1)
    finally:
        node.kill()


def test_a_node_that_cannot_be_formatted_leaves_nothing(disk: SmallDisk | None, tmp_path: Path) -> None:
    if disk is None:
        return
    disk.fill()
    overrides = {"log.dirs": f"{tmp_path / 'large'},{disk.path / 'a' / 'b'}"}
    node = NodeProcess(tmp_path / "node", overrides=overrides)
    node.launch()
    assert ended(node) == f"klamm: cannot format {disk.path / 'a' / 'b'}: {NO_SPACE}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.out", "small"]
    assert [path.name for path in disk.path.iterdir()] == ["ballast"]
    disk.free()
    node.start()
    assert node.stop() == 0


def test_a_node_that_finds_its_disk_full_loses_nothing(disk: SmallDisk | None, tmp_path: Path) -> None:
    """The start itself frees some space, so the node may serve; otherwise it prints the reason."""
    if disk is None:
        return
    node = NodeProcess(disk.path / "data")
    node.output = tmp_path / "out"
    try:
        node.start()
        create(node, "t", 1)
        writer = Writer(node)
        assert writer.write(0) is None
        node.stop()
        disk.fill()
        try:
            node.start()
        except AssertionError:
            assert NO_SPACE in ended(node)
        else:
            errors = (Writer(node).write(0) for _ in range(1000))
            assert next(error for error in errors if error is not None).code() == KafkaError.KAFKA_STORAGE_ERROR
            # The disk also holds the metadata log.
            message = ended(node)
            assert is_of_full_metadata_directory(message, node.data)
        disk.free()
        node.start()
        assert writer.acknowledged.items() <= stored(node, 0).items()
        assert Writer(node).write(0) is None
        assert node.stop() == 0
    finally:
        node.kill()
