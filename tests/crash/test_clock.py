"""The wall clock is set back by a day while a node runs: no record is lost, ages and lookups by time are correct."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import foreign
from tests.support.node_process import NodeProcess

DAY_S = 86_400
WAIT_S = 30
SETTINGS = {
    "log.message.timestamp.type": "LogAppendTime",
    "log.index.interval.bytes": "100",
    "log.retention.ms": "3600000",
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "10",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.check.interval.ms": "50",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.ms": "3600000",
    "metadata.max.retention.bytes": "-1",
}


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is for Linux")
    foreign.require("cc")
    source = Path(__file__).parents[1] / "support" / "wall_clock.c"
    library = tmp_path_factory.mktemp("clock") / "wall_clock.so"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        check=True,
    )
    return library


class Clock:
    """The clock of nodes that are started with its environment."""

    def __init__(self, file: Path, shim: Path) -> None:
        self.file, self.environment = file, {"LD_PRELOAD": str(shim), "KLAMM_CLOCK_FILE": str(file)}
        self.set_back(0)

    def set_back(self, seconds: int) -> None:
        self.file.write_text(f"{-seconds}")


def produce(bootstrap: str, count: int) -> list[int]:
    """Produce records one by one; returns their offsets."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for _ in range(count):
        producer.produce("t", b"v" * 150, partition=0, on_delivery=lambda _, record: offsets.append(record.offset()))
        assert producer.flush(WAIT_S) == 0
    return offsets


def read(bootstrap: str) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    rows: list[tuple[int, int]] = []
    while (message := consumer.poll(WAIT_S)) is not None:
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        rows.append((message.offset() or 0, message.timestamp()[1]))
    consumer.close()
    return rows


def found_by_time(bootstrap: str, timestamps: list[int]) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        asked = [TopicPartition("t", 0, timestamp) for timestamp in timestamps]
        return [consumer.offsets_for_times([one], timeout=WAIT_S)[0].offset for one in asked]
    finally:
        consumer.close()


def committed(admin: AdminClient) -> int:
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0)])])["g"]
    (partition,) = future.result(WAIT_S).topic_partitions or []
    return int(partition.offset)


def commit(admin: AdminClient, offset: int) -> None:
    asked = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, offset)])]
    admin.alter_consumer_group_offsets(asked)["g"].result(WAIT_S)


def check(bootstrap: str, count: int) -> None:
    """Every record exists, and a linear search finds the same first record at or after each time as the broker."""
    rows = read(bootstrap)
    assert [offset for offset, _ in rows] == list(range(count))
    times = sorted({timestamp for _, timestamp in rows})
    asked = [times[0] - 1, *times[:: max(1, len(times) // 10)], times[-1]]
    assert found_by_time(bootstrap, asked) == [
        next(offset for offset, timestamp in rows if timestamp >= wanted) for wanted in asked
    ]


def time_index(folder: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of each index entry, in all segments."""
    content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.timeindex")))
    return [entry for entry in struct.iter_unpack(">qi", content) if entry != (0, 0)]


def test_a_clock_that_is_set_back_loses_nothing(tmp_path: Path, shim: Path) -> None:
    clock = Clock(tmp_path / "clock", shim)
    node = NodeProcess(tmp_path / "data", overrides=SETTINGS, environment=clock.environment)
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        written = produce(node.bootstrap, 20)
        commit(admin, 7)
        clock.set_back(DAY_S)
        written += produce(node.bootstrap, 20)
        assert written == list(range(40))
        rows = read(node.bootstrap)
        assert rows[19][1] - rows[20][1] > (DAY_S - 600) * 1000, "the shim sets the node's clock"
        check(node.bootstrap, 40)
        commit(admin, 9)
        # The metadata log continues, and so do its snapshots.
        before = snapshots(node.data)
        deadline = time.monotonic() + WAIT_S
        for number in range(1000):
            if snapshots(node.data) - before:
                break
            assert time.monotonic() < deadline, "no snapshot is written"
            admin.create_topics([NewTopic(f"later{number}", 1, 1)])[f"later{number}"].result(WAIT_S)
        for end in (node.stop, node.kill):
            end()
            node.start()
            check(node.bootstrap, 40)
            assert committed(AdminClient({"bootstrap.servers": node.bootstrap})) == 9
            assert "later0" in AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=WAIT_S).topics
        # Set right again: the records written meanwhile have timestamps a day old, and are retained with the newest of
        # the segment.
        clock.set_back(0)
        assert produce(node.bootstrap, 5) == list(range(40, 45))
        check(node.bootstrap, 45)
    index = time_index(node.data / "t-0")
    assert len(index) > 5
    assert index == sorted(index), "times and offsets rise together"


def snapshots(data: Path) -> set[str]:
    return {path.name for path in (data / "__cluster_metadata-0").glob("*.checkpoint")}
