"""The partitions of an internal topic that a node leads, as its coordinator learns of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from klamm._engine.controller import topic_records
from klamm._engine.metadata import Image
from klamm.node.coordinators.topic_coordinator import TopicCoordinator
from klamm.protocol.generated.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    encode_at,
)

LEVEL = 30
TOPIC = "__states"
THIS, OTHER = 1, 2


class Recording:
    """A coordinator that notes what it hosts, and every load of a partition."""

    def __init__(self) -> None:
        self.hosted, self.loads = dict[int, int](), list[tuple[int, int]]()

    def use_partition_count(self, partition_count: int) -> None:
        self.partition_count = partition_count

    def partition_for(self, key: str) -> int:
        return 0

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        if self.hosted.get(partition, -1) < leader_epoch:
            self.hosted[partition] = leader_epoch
            self.loads.append((partition, leader_epoch))

    def on_resigned(self, partition: int) -> None:
        del self.hosted[partition]

    def on_pause(self, pause_ms: int) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


class States(TopicCoordinator[Recording]):
    topic: ClassVar[str] = TOPIC

    def _make(self) -> Recording:
        return Recording()

    def new_topic(self) -> Any:
        raise AssertionError


def broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        broker_epoch=10,
        end_points=[],
        features=[],
        rack=None,
        fenced=False,
        log_dirs=[bytes([broker_id + 100]) * 16],
    )


class Node:
    """A node whose coordinator follows the images that are published."""

    def __init__(self) -> None:
        level = FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
        self.image = Image().apply([encode_at(record, LEVEL) for record in (level, broker(THIS), broker(OTHER))])
        unused: Any = None
        config: Any = SimpleNamespace(node_id=THIS)
        self.states = States(config, unused, lambda: self.image, unused)
        self.states.start()

    def publish(self, *records: bytes) -> None:
        before, self.image = self.image, self.image.apply(list(records))
        self.states.on_published(self.image, self.image.delta_since(before))

    def new_topic(self, topic_id: bytes, *replicas: list[int]) -> list[bytes]:
        return topic_records(self.image, TOPIC, topic_id, [], list(replicas))


def removed(topic_id: bytes) -> bytes:
    return encode_at(RemoveTopicRecord(topic_id=topic_id), LEVEL)


def led_by(leader: int) -> bytes:
    return encode_at(PartitionChangeRecord(partition_id=0, topic_id=A, leader=leader), LEVEL)


A, B = (bytes([number]) * 16 for number in (10, 11))


def test_a_partition_is_loaded_in_each_leader_epoch() -> None:
    node = Node()
    node.publish(*node.new_topic(A, [THIS, OTHER], [OTHER, THIS]))
    coordinator = node.states.coordinator
    assert coordinator.hosted == {0: 0}
    for leader in (OTHER, THIS, THIS):
        node.publish(led_by(leader))
    assert (coordinator.hosted, coordinator.loads) == ({0: 3}, [(0, 0), (0, 2), (0, 3)])
    node.publish(removed(A))
    assert coordinator.hosted == {}


def test_a_topic_that_was_created_again_is_loaded() -> None:
    """Both changes are in one image: leaders and epochs are those of the deleted topic."""
    node = Node()
    node.publish(*node.new_topic(A, [THIS], [THIS], [THIS]))
    coordinator = node.states.coordinator
    node.publish(removed(A), *node.new_topic(B, [THIS], [THIS]))
    assert coordinator.hosted == {0: 0, 1: 0}
    assert sorted(coordinator.loads) == [(0, 0), (0, 0), (1, 0), (1, 0), (2, 0)]
    assert coordinator.partition_count == 2
