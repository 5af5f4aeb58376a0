"""The share coordinator of a node: shards in a loop, responses of handlers, and pruning."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.coordinator.memory_log import MemoryLog
from tests.unit.coordinator.share.harness import TOPIC_ID

from klamm.broker.handlers.share_state import ShareStateHandlers
from klamm.coordinator.runtime.log import RecordError
from klamm.coordinator.share.config import ShareConfig
from klamm.coordinator.share.driver import ShareCoordinator
from klamm.coordinator.share.shard import Prune
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.share_state import (
    InitializedPartition,
    InitializedTopic,
    InitializeStateRequest,
    InitializeStateResponse,
    ReadPartition,
    ReadStateRequest,
    ReadStateResponse,
    ReadTopic,
    SharePartitionKey,
)
from klamm.protocol.wire.codec import read_response, write_request

PARTITIONS = 4
NONE = ErrorCode.NONE
NOT_HERE = ErrorCode.NOT_COORDINATOR


class PrunedLog(MemoryLog):
    """Remembers how far it was pruned."""

    topic = "__share_group_state"

    def __init__(self) -> None:
        super().__init__()
        self.pruned: list[tuple[int, int]] = []
        self.prune_refusal: Exception | None = None

    def prune(self, partition: int, offset: int, key: bytes) -> None:
        if self.prune_refusal is not None:
            raise self.prune_refusal
        found: Any = self.partitions[partition][offset]
        assert found[0] == key
        self.pruned.append((partition, offset))


class Node:
    """A coordinator, its handlers, and requests for one topic."""

    def __init__(self, config: ShareConfig) -> None:
        self.log = PrunedLog()
        self.coordinator = ShareCoordinator(
            config, self.log, PARTITIONS, has_partition=lambda *_: True, is_enabled=lambda: True
        )
        self.handlers = ShareStateHandlers(self.coordinator)

    async def start(self) -> None:
        for partition in range(PARTITIONS):
            self.coordinator.on_elected(partition, 1)
        await self.coordinator.loaded()

    async def initialize(self, *partitions: int, epoch: int = 0) -> dict[int, ErrorCode]:
        asked = InitializedTopic(TOPIC_ID, tuple(InitializedPartition(one, epoch, 5) for one in partitions))
        body = write_request(InitializeStateRequest("g", (asked,)), 0)
        context: Any = None
        answer = read_response(InitializeStateResponse, 0, await self.handlers.initialize(context, 0, body))
        [topic] = answer.results
        assert topic.topic_id == TOPIC_ID
        return {one.partition: one.error_code for one in topic.partitions}

    def partition_of(self, partition: int) -> int:
        return self.coordinator.partition_for(SharePartitionKey("g", TOPIC_ID, partition).coordinator_key())


@pytest.fixture
async def node() -> Node:
    made = Node(ShareConfig())
    await made.start()
    return made


async def test_partitions_of_one_request_are_in_different_shards(node: Node) -> None:
    assert await node.initialize(*range(20)) == dict.fromkeys(range(20), NONE)
    states = [hosted.shard.states for hosted in node.coordinator.runtime.shards.all()]
    assert all(states)
    assert sum(map(len, states)) == 20


async def test_only_partitions_of_other_coordinators_are_rejected(node: Node) -> None:
    gone = node.partition_of(0)
    node.coordinator.on_resigned(gone)
    found = await node.initialize(*range(20))
    assert found == {one: NOT_HERE if node.partition_of(one) == gone else NONE for one in range(20)}


async def test_the_message_of_a_refusal(node: Node) -> None:
    node.coordinator.close()
    body = write_request(ReadStateRequest("g", (ReadTopic(TOPIC_ID, (ReadPartition(0, 1),)),)), 0)
    context: Any = None
    answer = read_response(ReadStateResponse, 0, await node.handlers.read(context, 0, body))
    [result] = answer.results[0].partitions
    assert result.error_code is NOT_HERE
    assert result.error_message == "Unable to read share group state: This is not the correct coordinator."


async def test_an_append_that_fails(node: Node) -> None:
    node.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await node.initialize(0) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    node.log.refusal = None
    assert await node.initialize(0) == {0: NONE}


async def test_the_states_of_deleted_topics(node: Node) -> None:
    await node.initialize(0)
    partition = node.partition_of(0)
    node.coordinator.on_topics_deleted([TOPIC_ID])
    await until(lambda: len(node.log.partitions[partition]) == 2)
    hosted = node.coordinator.runtime.shards.active(partition)
    assert not hosted.shard.states


class TestPruning:
    async def pruned(self, node: Node) -> None:
        """Two snapshots, of which the first is redundant; returns the effect of the prune timer."""
        await node.initialize(0)
        await node.initialize(0)
        hosted = node.coordinator.runtime.shards.active(node.partition_of(0))
        node.coordinator.runtime.feed(hosted, lambda shard, now_ms: shard.on_timer(now_ms, "prune"))

    async def test_the_log_is_pruned_once(self, node: Node) -> None:
        await self.pruned(node)
        assert node.log.pruned == [(node.partition_of(0), 1)]
        hosted = node.coordinator.runtime.shards.active(node.partition_of(0))
        node.coordinator.runtime.feed(hosted, lambda shard, now_ms: shard.on_timer(now_ms, "prune"))
        assert len(node.log.pruned) == 1
        assert node.coordinator.last_pruned_offsets == {node.partition_of(0): 1}

    async def test_a_partition_that_moves_is_pruned_later(self, node: Node) -> None:
        node.log.prune_refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self.pruned(node)
        assert not node.coordinator.last_pruned_offsets
        node.log.prune_refusal = None
        hosted = node.coordinator.runtime.shards.active(node.partition_of(0))
        node.coordinator.runtime.feed(hosted, lambda shard, now_ms: shard.on_timer(now_ms, "prune"))
        assert node.log.pruned

    async def test_a_shard_with_a_wrong_prune_offset_is_reloaded(self, node: Node) -> None:
        node.log.prune_refusal = RecordError("another record is there")
        await self.pruned(node)
        partition = node.partition_of(0)
        await until(lambda: node.coordinator.runtime.counts.loads == PARTITIONS + 1)
        assert node.coordinator.runtime.shards.active(partition).shard.states
        assert node.coordinator.runtime.counts.faults == 1


def test_the_key_of_a_share_partition() -> None:
    key = SharePartitionKey("a:b", TOPIC_ID, 7)
    assert key.coordinator_key() == "a:b:AAECAwQFBgcICQoLDA0ODw:7"
    assert SharePartitionKey.parse(key.coordinator_key()) == key


def test_effects_are_values() -> None:
    assert Prune(1, b"k") == Prune(1, b"k")


async def test_a_group_id_that_no_record_can_hold(node: Node) -> None:
    asked = InitializedPartition(0, 1, 5)
    for length, expected in ((32_768, ErrorCode.UNKNOWN_SERVER_ERROR), (32_767, NONE)):
        answer = await node.coordinator.initialize(SharePartitionKey("g" * length, TOPIC_ID, 0), asked)
        assert answer.error_code is expected
    assert node.coordinator.runtime.counts.faults == 0
