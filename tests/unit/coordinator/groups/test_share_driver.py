"""Share groups in a node's coordinator: shards in a loop, and calls of share coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import pytest
from tests.support.waiting import until
from tests.unit.coordinator.memory_log import MemoryLog
from tests.unit.coordinator.runtime.test_faults import fail_once

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.node.views.group_topics import GroupTopics
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeletedOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    OffsetsGroup,
    OffsetsTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.messages.share_state import (
    InitializedPartition,
    PartitionError,
    PartitionSummary,
    SharePartitionKey,
)
from klamm.protocol.topic_info import TopicInfo

from .images import image_of

NONE = ErrorCode.NONE
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
T = TopicInfo("t", b"t" * 16, 2)


class States:
    """The share coordinators, and the partition leaders."""

    def __init__(self) -> None:
        self.refusal = NONE
        self.initialized: dict[SharePartitionKey, InitializedPartition] = {}
        self.deleted: list[SharePartitionKey] = []
        self.end = (NONE, 10)

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        self.initialized[key] = asked
        return PartitionError(key.partition, self.refusal)

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        self.deleted.append(key)
        return PartitionError(key.partition, self.refusal)

    async def read_summary(self, key: SharePartitionKey) -> PartitionSummary:
        asked = self.initialized.get(key)
        if asked is None or self.refusal is not NONE:
            return PartitionSummary(key.partition, self.refusal, start_offset=-1)
        count = -1 if asked.start_offset < 0 else 1
        return PartitionSummary(key.partition, NONE, None, 1, 3, asked.start_offset, count)

    async def ends(self, asked: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[ErrorCode, int]]:
        return dict.fromkeys(asked, self.end)


class Node:
    def __init__(self) -> None:
        self.states, image = States(), image_of(T)
        self.groups = GroupCoordinator(
            GroupConfig(),
            MemoryLog(),
            1,
            topics=GroupTopics(lambda: image),
            persister=self.states,
            end_offsets=self.states.ends,
        )

    async def start(self) -> None:
        self.groups.on_elected(0, 1)
        await self.groups.loaded()

    async def beat(self, epoch: int = 0) -> ShareGroupHeartbeatResponse:
        answered: asyncio.Future[ShareGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
        names = ("t",) if epoch == 0 else None
        request = ShareGroupHeartbeatRequest("g", "m", epoch, None, names)
        self.groups.share.heartbeat(Caller(1, "c", "/h"), request, answered.set_result)
        return await answered

    @property
    def group(self) -> ShareGroup:
        group = self.groups.runtime.shards.active(0).shard.modern_groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def sets(self) -> tuple[int, int, int]:
        """The number of topics in the three sets of record 15."""
        states = self.group.states
        return (
            (0, 0, 0)
            if states is None
            else (*map(len, (states.initializing, states.initialized)), len(states.deleting))
        )

    async def alter(self, offset: int = 4) -> list[ErrorCode]:
        topics = (AlteredTopic("t", (AlteredPartition(0, offset), AlteredPartition(9, 0))),)
        found = await self.groups.share.alter_offsets(AlterShareGroupOffsetsRequest("g", topics))
        assert found.error_code is NONE
        return [one.error_code for topic in found.responses for one in topic.partitions]

    async def delete_offsets(self, *names: str) -> dict[str, ErrorCode]:
        request = DeleteShareGroupOffsetsRequest("g", tuple(map(DeletedOffsetsTopic, names)))
        found = await self.groups.share.delete_offsets(request)
        assert found.error_code is NONE, found
        return {one.topic_name: one.error_code for one in found.responses}

    async def starts(self) -> list[tuple[int, int, ErrorCode]]:
        """Start offset, lag and code of each partition."""
        asked = OffsetsGroup("g", (OffsetsTopic("t", (0, 1)),))
        [topic] = (await self.groups.share.describe_offsets(asked)).topics
        return [(one.start_offset, one.lag, one.error_code) for one in topic.partitions]


@pytest.fixture
async def node() -> Node:
    made = Node()
    await made.start()
    return made


async def test_states_are_created_for_members(node: Node) -> None:
    assert (await node.beat()).member_epoch == 2
    await until(lambda: node.sets() == (0, 1, 0))
    assert {key.partition for key in node.states.initialized} == {0, 1}


async def test_states_that_cannot_be_created(node: Node) -> None:
    node.states.refusal = GONE
    await node.beat()
    await until(lambda: len(node.states.initialized) == 2 and node.sets() == (0, 0, 0))
    node.states.refusal = NONE
    await node.beat(2)
    await until(lambda: node.sets() == (0, 1, 0))


async def test_altered_and_described_offsets(node: Node) -> None:
    assert await node.alter() == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await until(lambda: node.sets() == (0, 1, 0))
    assert await node.starts() == [(4, 5, NONE), (-1, -1, NONE)]
    node.states.end = (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (await node.starts())[0] == (0, -1, ErrorCode.LEADER_NOT_AVAILABLE)


async def test_a_lag_that_overflows(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client wrote a start offset that no log has, by WriteShareGroupState."""
    await node.alter()

    async def summary(key: SharePartitionKey) -> PartitionSummary:
        return PartitionSummary(key.partition, NONE, None, 1, 3, -(2**63), 1)

    monkeypatch.setattr(node.states, "read_summary", summary)
    assert (await node.starts())[0] == (-(2**63), 9 - 2**63, NONE)


async def test_offsets_that_cannot_be_altered(node: Node) -> None:
    node.states.refusal = GONE
    assert await node.alter() == [GONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.sets() == (1, 0, 0), "as in Kafka they stay"
    assert await node.starts() == [(-1, -1, NONE), (-1, -1, NONE)], "an error counts as nothing"


async def test_a_negative_partition_is_unknown(node: Node) -> None:
    topics = (AlteredTopic("t", (AlteredPartition(0, 4), AlteredPartition(-1, 4))),)
    found = await node.groups.share.alter_offsets(AlterShareGroupOffsetsRequest("g", topics))
    assert [one.error_code for one in found.responses[0].partitions] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert {key.partition for key in node.states.initialized} == {0}
    await until(lambda: node.sets() == (0, 1, 0))


async def test_deleted_offsets(node: Node) -> None:
    await node.alter()
    await until(lambda: node.sets() == (0, 1, 0))
    node.states.refusal = GONE
    assert await node.delete_offsets("t") == {"t": GONE}
    assert node.sets() == (0, 0, 1), "until they are deleted"
    node.states.refusal = NONE
    assert await node.delete_offsets("t", "absent") == {"t": NONE, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert node.sets() == (0, 0, 0)


async def test_a_group_whose_states_cannot_be_deleted_is_kept(node: Node) -> None:
    await node.alter()
    await until(lambda: node.sets() == (0, 1, 0))
    node.states.refusal = GONE
    [deleted] = await node.groups.delete_groups(["g"])
    assert deleted.error_code is GONE
    assert node.sets() == (0, 0, 1)
    node.states.refusal = NONE
    [deleted] = await node.groups.delete_groups(["g"])
    assert deleted.error_code is NONE
    assert not node.groups.runtime.shards.active(0).shard.modern_groups


async def test_a_failure_when_states_were_created_reloads_the_shard(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = fail_once(monkeypatch, GroupShard, "on_states_created")
    await node.beat()
    await until(raised.is_set)
    await until(lambda: node.groups.runtime.counts.loads == 2)
    assert node.sets() == (1, 0, 0), "they are created again after the retry interval"


async def test_a_failure_when_a_group_is_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.alter()
    await until(lambda: node.sets() == (0, 1, 0))
    raised = fail_once(monkeypatch, GroupShard, "on_delete_share_states")
    [deleted] = await node.groups.delete_groups(["g"])
    assert deleted.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert raised.is_set()
    await until(lambda: node.groups.runtime.counts.loads == 2)
    assert node.sets() == (0, 1, 0)


async def test_a_failure_when_states_were_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.alter()
    await until(lambda: node.sets() == (0, 1, 0))
    raised = fail_once(monkeypatch, GroupShard, "on_share_states_deleted")
    request = DeleteShareGroupOffsetsRequest("g", (DeletedOffsetsTopic("t"),))
    found = await node.groups.share.delete_offsets(request)
    assert found.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert raised.is_set()
    await until(lambda: node.groups.runtime.counts.loads == 2)
    assert node.sets() == (0, 0, 1)
