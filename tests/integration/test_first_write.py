"""A partition's files are created by its first write, and not by reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient

import klamm

TOPIC = "quiet"


def folders(*dirs: Path) -> list[str]:
    """The partitions' folders in each log directory."""
    return sorted(found.name for data in dirs for found in data.glob(f"{TOPIC}-*"))


def ask_of(cluster: klamm.Cluster, partition: int) -> None:
    """ListOffsets with every kind of timestamp, and a fetch from the beginning."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    where = TopicPartition(TOPIC, partition)
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(0), OffsetSpec.max_timestamp()):
        found = admin.list_offsets({where: spec})[where].result(30)
        assert found.offset in (0, -1)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is not None
    assert message.offset() == 0
    consumer.close()


def described(cluster: klamm.Cluster) -> dict[str, dict[int, int]]:
    """Sizes by directory and partition, from DescribeLogDirs."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        [answer] = admin.describe_log_dirs()
    finally:
        admin.close()
    return {
        each["log_dir"]: {
            partition["partition_index"]: partition["partition_size"]
            for topic in each["topics"]
            if topic["name"] == TOPIC
            for partition in topic["partitions"]
        }
        for each in answer["log_dirs"]
    }


def write(cluster: klamm.Cluster, partition: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(TOPIC, b"value", partition=partition)
    assert producer.flush(30) == 0


def test_only_a_write_creates_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klamm.Cluster(data) as cluster:
        cluster.create_topic(TOPIC, 3)
        ask_of(cluster, 0)
        assert folders(data) == []
        [sizes] = described(cluster).values()
        assert sizes == {0: 0, 1: 0, 2: 0}
        write(cluster, 1)
        assert folders(data) == [f"{TOPIC}-1"]
    with klamm.Cluster(data) as cluster:
        ask_of(cluster, 0)
        assert len(cluster.records(TOPIC)) == 1
        assert folders(data) == [f"{TOPIC}-1"]
        [sizes] = described(cluster).values()
        assert sizes[0] == sizes[2] == 0 < sizes[1]
        write(cluster, 0)
        assert len(cluster.records(TOPIC)) == 2
        assert folders(data) == [f"{TOPIC}-0", f"{TOPIC}-1"]


def test_an_unwritten_partition_is_deleted_completely(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klamm.Cluster(data) as cluster:
        cluster.create_topic(TOPIC)
        ask_of(cluster, 0)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        assert folders(data) == []
        cluster.create_topic(TOPIC)
        write(cluster, 0)
        assert len(cluster.records(TOPIC)) == 1


@pytest.mark.parametrize("count", [4])
def test_a_partition_is_created_in_the_directory_of_describe_log_dirs(tmp_path: Path, count: int) -> None:
    dirs = [tmp_path / name for name in "ab"]
    settings = {"log.dirs": ",".join(map(str, dirs))}
    with klamm.Cluster(tmp_path / "data", config=settings) as cluster:
        cluster.create_topic(TOPIC, count)
        by_dir = described(cluster)
        assert [len(by_dir[str(found)]) for found in dirs] == [count // 2, count // 2]
        for partition in reversed(range(count)):
            write(cluster, partition)
        assert {path: set(sizes) for path, sizes in described(cluster).items()} == {
            path: set(sizes) for path, sizes in by_dir.items()
        }
        for found in dirs:
            assert folders(found) == sorted(f"{TOPIC}-{partition}" for partition in by_dir[str(found)])
