"""Reads the state of a cluster in this process from the nodes that have it: leaders and coordinators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from klamm.coordinator.runtime.driver import into
from klamm.embedded.groups import lag_of, membership, partitions_of, share_progress, state_of
from klamm.embedded.members import Members
from klamm.embedded.transactions import TransactionState, states_of
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.node import Node
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.membership import SHARE
from klamm.protocol.messages.group_messages import FetchGroup
from klamm.protocol.messages.share_groups import OffsetsGroup
from klamm.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from klamm.embedded.groups import GroupState
    from klamm.protocol.membership import Membership
    from klamm.protocol.messages.group_messages import FetchedGroup, FetchedTopic

T = TypeVar("T")

ELECTION_TIMEOUT_S: Final = 10.0
HEARD_POLL_S: Final = 0.001


class ClusterReader:
    """After a failure, each method waits until the next leader or coordinator serves. Each raises KafkaError.

    To be used on the loop's thread.
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    async def leaders_of(self, topic_id: bytes, partitions: Sequence[int]) -> dict[int, tuple[Node, int]]:
        """The leader of each partition, and the high watermark there."""

        async def find(partition: int) -> tuple[Node, int]:
            leader = self._leader_of(topic_id, partition)
            return leader, leader.engine.high_watermark(topic_id, partition)

        return {partition: await _when_elected(partial(find, partition)) for partition in partitions}

    async def ends_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks of the partitions that exist."""
        ends: dict[TopicPartition, int] = {}
        for topic, partition in partitions:
            image = self._members.best_informed.image
            topic_id = image.topic_id(topic)
            if topic_id is not None and image.partition(topic_id, partition) is not None:
                found = await self.leaders_of(topic_id, [partition])
                ends[TopicPartition(topic, partition)] = found[partition][1]
        return ends

    async def group(self, name: str) -> GroupState:
        """A group with its members and its lag. GROUP_ID_NOT_FOUND if there is no such group."""
        members = await _when_elected(partial(self._membership, name))
        if members.kind == SHARE:
            committed, lag = await _when_elected(partial(self._share_progress, name))
            return state_of(members, partitions_of(members, committed), committed, lag)
        committed = await self.committed(name)
        ends = await self.ends_of(partitions_of(members, committed))
        return state_of(members, ends, committed, lag_of(committed, ends))

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group."""
        fetched = await _when_elected(partial(self._offsets_of, group))
        return {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in fetched
            for partition in topic.partitions
        }

    async def transactions(self) -> list[TransactionState]:
        """All transactional ids, sorted."""
        return await _when_elected(self._transactions)

    def _leader_of(self, topic_id: bytes, partition: int) -> Node:
        image = self._members.best_informed.image
        info = image.partition(topic_id, partition)
        node = None if info is None else self._members.running_broker(info.leader)
        if node is None:
            text = f"partition {partition} of '{image.topic_name(topic_id)}' has no leader now"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        return node

    def _coordinator_of(self, group: str) -> Node | None:
        """The node that coordinates a group; None while no group ever committed."""
        node = self._members.best_informed
        topic_id = node.image.topic_id(GROUPS_TOPIC)
        return None if topic_id is None else self._leader_of(topic_id, node.groups.partition_for(group))

    async def _membership(self, group: str) -> Membership:
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{group}'")
        return await membership(coordinator, group)

    async def _share_progress(self, group: str) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            return {}, {}
        return share_progress(await coordinator.groups.share.describe_offsets(OffsetsGroup(group)))

    async def _offsets_of(self, group: str) -> tuple[FetchedTopic, ...]:
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            return ()
        fetched: asyncio.Future[FetchedGroup] = asyncio.get_running_loop().create_future()
        coordinator.groups.offset_fetch(FetchGroup(group, None), into(fetched), require_stable=False)
        answer = await fetched
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code), f"the committed offsets of group '{group}' cannot be read")
        return answer.topics

    async def _transactions(self) -> list[TransactionState]:
        image = self._members.best_informed.image
        topic_id = image.topic_id(TRANSACTIONS_TOPIC)
        if topic_id is None:
            return []
        leaders = (self._leader_of(topic_id, one) for one in range(image.topic_partition_count(topic_id)))
        return await states_of({id(node): node for node in leaders}.values())


async def _when_elected(ask: Callable[[], Awaitable[T]]) -> T:
    """The result of `ask`, which is repeated while an election is in progress. Raises KafkaError."""
    end = time.monotonic() + ELECTION_TIMEOUT_S
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.code.is_retriable or time.monotonic() > end:
                raise
        await asyncio.sleep(HEARD_POLL_S)
