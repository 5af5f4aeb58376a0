"""klamm opens the directories that Apache Kafka 4.3.1 wrote, and clients read the same records and metadata."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support.node_process import NodeProcess

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.3.1"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture(scope="module", params=["clean", "killed"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(GOLDEN / f"{request.param}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    overrides = {"offsets.topic.num.partitions": "4", "log.cleaner.enable": "false"}
    with NodeProcess(folder / request.param, overrides=overrides) as running:
        yield running


def read(bootstrap: str, topic: str, isolation: str) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Any] = []
    try:
        while True:
            message = consumer.poll(15)
            assert message is not None, f"{topic} stopped after {len(rows)} records"
            if message.error() is not None:
                return rows
            key, value = message.key(), message.value()
            row = [message.offset(), message.timestamp()[1], key and key.decode()]
            rows.append([*row, None if value is None else value.decode()])
    finally:
        consumer.close()


def last_values(rows: list[Any]) -> dict[str, Any]:
    return {key: value for _, _, key, value in rows if value is not None}


@pytest.mark.parametrize("topic", EXPECTED["records"])
def test_records(node: NodeProcess, topic: str) -> None:
    found, wanted = read(node.bootstrap, topic, "read_uncommitted"), EXPECTED["records"][topic]
    if topic == "compacted":
        # Kafka's cleaner may have run between the reading and the packing; the last value of each key is unaffected.
        assert last_values(found) == last_values(wanted)
    else:
        assert found == wanted


def test_the_last_stable_offset_of_open_transactions_is_respected(node: NodeProcess) -> None:
    found = read(node.bootstrap, "transactional", "read_committed")
    assert found == EXPECTED["read_committed"]["transactional"]


def test_group_offsets(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for group, topics in EXPECTED["committed"].items():
        for topic, partitions in topics.items():
            asked = [TopicPartition(topic, int(index)) for index in partitions]
            future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])[group]
            found = {str(one.partition): one.offset for one in future.result().topic_partitions}
            assert found == partitions


def test_metadata(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    metadata = admin.list_topics(timeout=60)
    assert metadata.cluster_id == EXPECTED["cluster_id"]
    assert "deleted" not in metadata.topics
    for topic, count in EXPECTED["partitions"].items():
        assert len(metadata.topics[topic].partitions) == count
    for topic, configs in EXPECTED["configs"].items():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = admin.describe_configs([resource])[resource].result()
        assert {key: entries[key].value for key in configs} == configs
