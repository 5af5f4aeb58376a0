"""Where the groups of a simulated cluster are: partitions of `__consumer_offsets`, their brokers and their shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.coordinator.runtime.hosted_shard import LoadState
from klamm.coordinator.runtime.placement import partition_of
from klamm.node.groups import GROUPS_TOPIC
from klamm.testing.simulator.brokers.group_settings import PARTITIONS

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm.coordinator.groups.shard import GroupShard
    from klamm.coordinator.runtime.hosted_shard import HostedShard
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.scene import Scene


def place_of(group_id: str) -> tuple[str, int]:
    """The partition in which a group is."""
    return GROUPS_TOPIC, partition_of(group_id, PARTITIONS)


def coordinator_of(scene: Scene, brokers: dict[int, Broker], group_id: str) -> Broker | None:
    """The coordinator, as some broker knows it (FindCoordinator)."""
    return _leader(scene.rng.choice(list(brokers.values())).image, brokers, group_id)


def _leader(image: Image, brokers: dict[int, Broker], group_id: str) -> Broker | None:
    topic_id = image.topic_id(GROUPS_TOPIC)
    partition = None if topic_id is None else image.partition(topic_id, place_of(group_id)[1])
    return None if partition is None or partition.leader < 0 else brokers[partition.leader]


def newest_shard(scene: Scene, brokers: dict[int, Broker], group_id: str) -> HostedShard[GroupShard] | None:
    """The shard of the group on the broker that leads by what is committed, if it is loaded."""
    image = scene.controller.committed[1]
    broker = _leader(image, brokers, group_id)
    if broker is None or broker.coordinators is None or not broker.is_up:
        return None
    runtime, index = broker.coordinators.groups.runtime, place_of(group_id)[1]
    hosted = None if runtime is None else runtime.shards.get(index)
    topic_id = image.topic_id(GROUPS_TOPIC)
    partition = None if topic_id is None else image.partition(topic_id, index)
    if hosted is None or partition is None or hosted.leader_epoch != partition.leader_epoch:
        return None
    return hosted if hosted.state is LoadState.ACTIVE else None
