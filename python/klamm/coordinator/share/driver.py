"""The share coordinator of a node: the state APIs on top of the shards of the coordinator runtime."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Protocol

from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import CoordinatorLog
from klamm.coordinator.runtime.placement import partition_of
from klamm.coordinator.share.config import ShareConfig
from klamm.coordinator.share.counts import ShareCounts
from klamm.coordinator.share.shard import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    Operation,
    Prune,
    ShareEffects,
    ShareShard,
)
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.share_state import (
    InitializedPartition,
    PartitionError,
    PartitionState,
    PartitionSummary,
    ReadPartition,
    SharePartitionKey,
    WrittenPartition,
)

log: Final = logging.getLogger("klamm.coordinator")


class ShareLog(CoordinatorLog, Protocol):
    """The log of `__share_group_state`, whose redundant records are deleted."""

    def prune(self, partition: int, offset: int, key: bytes) -> None:
        """Delete the records before `offset`, where a record with this key is.

        Raises RecordError if another record is there, and KafkaError.
        """
        ...


class ShareCoordinator:
    """Answers the state APIs for the partitions of `__share_group_state` that this node leads.

    Call all methods in the loop's thread. Errors are in the results, not raised.
    """

    def __init__(
        self,
        config: ShareConfig,
        state_log: ShareLog,
        partition_count: int,
        *,
        has_partition: Callable[[bytes, int], bool],
        is_enabled: Callable[[], bool],
    ) -> None:
        """`has_partition` and `is_enabled` as for `ShareShard`."""
        self._log: Final = state_log
        self._partition_count = partition_count
        self._pruned_to: dict[int, int] = {}
        """By partition: the last offset to which it was pruned."""
        self.counts: Final = ShareCounts()
        self.runtime: Final = CoordinatorRuntime(
            state_log, lambda: ShareShard(config, has_partition, is_enabled, self.counts), carry_out=self._carry_out
        )

    def partition_for(self, key: str) -> int:
        """The partition of `__share_group_state` for a key `group:topicId:partition`."""
        return partition_of(key, self._partition_count)

    def use_partition_count(self, partition_count: int) -> None:
        """Set the partition count of the topic. As in Kafka it is fixed from the first election on."""
        if not self.runtime.shards.all():
            self._partition_count = partition_count

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node became leader of the partition: load it."""
        self._pruned_to.pop(partition, None)
        self.runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node lost the leadership of the partition, in `leader_epoch` if that is known."""
        self._pruned_to.pop(partition, None)
        self.runtime.on_resigned(partition, leader_epoch)

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Delete the states of deleted topics."""
        deleted = frozenset(topic_ids)
        self.runtime.feed_all(lambda shard, _: shard.on_topics_deleted(deleted))

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms`."""
        self.runtime.on_pause(pause_ms)

    async def loaded(self) -> None:
        """Wait until each partition that this node leads is active or failed to load."""
        await self.runtime.loaded()

    def close(self) -> None:
        """Unload all partitions. Waiting requests are answered with NOT_COORDINATOR."""
        self.runtime.close()

    @property
    def last_pruned_offsets(self) -> dict[int, int]:
        """By partition: the offset of the last pruning; none before the first since this node leads it."""
        return dict(self._pruned_to)

    # Requests, each of one share partition

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        """InitializeShareGroupState (83)."""
        found: PartitionError = await self._ask(INITIALIZE, key, ShareShard.on_initialize, asked)
        return found

    async def read(self, key: SharePartitionKey, asked: ReadPartition) -> PartitionState:
        """ReadShareGroupState (84)."""
        found: PartitionState = await self._ask(READ, key, ShareShard.on_read, asked)
        return found

    async def write(self, key: SharePartitionKey, asked: WrittenPartition) -> PartitionError:
        """WriteShareGroupState (85)."""
        found: PartitionError = await self._ask(WRITE, key, ShareShard.on_write, asked)
        return found

    def submit_read(self, key: SharePartitionKey, asked: ReadPartition, answer: Callable[[Any], None]) -> None:
        """The same as `read`, with a callback: a task and its future would cost more than the response."""
        self._submit(answer, READ, key, ShareShard.on_read, asked)

    def submit_write(self, key: SharePartitionKey, asked: WrittenPartition, answer: Callable[[Any], None]) -> None:
        """The same as `write`, with a callback."""
        self._submit(answer, WRITE, key, ShareShard.on_write, asked)

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        """DeleteShareGroupState (86)."""
        found: PartitionError = await self._ask(DELETE, key, ShareShard.on_delete)
        return found

    async def read_summary(self, key: SharePartitionKey) -> PartitionSummary:
        """ReadShareGroupStateSummary (87)."""
        found: PartitionSummary = await self._ask(SUMMARY, key, ShareShard.on_summary)
        return found

    async def _ask(
        self, operation: Operation, key: SharePartitionKey, event: Callable[..., ShareEffects], *args: object
    ) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._submit(into(future), operation, key, event, *args)
        return await future

    def _submit(
        self,
        answer: Callable[[Any], None],
        operation: Operation,
        key: SharePartitionKey,
        event: Callable[..., ShareEffects],
        *args: object,
    ) -> None:
        refuse = partial(operation.refused, key.partition)
        try:
            hosted = self.runtime.shards.active(self.partition_for(key.coordinator_key()))
        except KafkaError as error:
            answer(refuse(error.code))
        else:
            self.runtime.submit(hosted, answer, refuse, partial(event, hosted.shard), key, *args)

    # Pruning

    def _carry_out(self, hosted: HostedShard[ShareShard], prune: Prune) -> None:
        """Delete redundant records. A RecordError means that the shard counts offsets wrongly: it is reloaded."""
        partition = hosted.partition
        if self._pruned_to.get(partition) == prune.offset:
            return
        try:
            self._log.prune(partition, prune.offset, prune.key)
        except KafkaError as error:  # the partition moves, or its disk fails; the next prune tries again
            log.info("partition %d of %s is not pruned now: %s", partition, self._log.topic, error)
        else:
            self._pruned_to[partition] = prune.offset
