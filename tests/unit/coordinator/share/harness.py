"""A share shard with a log in memory and a clock, and the partitions that exist."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinator.hosting_room import HostingRoom

from klamm.coordinator.runtime.log import LoadedRecord, LogRecord
from klamm.coordinator.share.config import ShareConfig
from klamm.coordinator.share.partition_state import ShareState
from klamm.coordinator.share.records import SNAPSHOT, Snapshot, Update, decode_key, decode_snapshot, decode_update
from klamm.coordinator.share.shard import Prune, ShareShard
from klamm.protocol.messages.share_state import (
    InitializedPartition,
    ReadPartition,
    SharePartitionKey,
    StateBatch,
    WrittenPartition,
    batch_messages,
)

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC_ID, 0)
OTHER = SharePartitionKey("g", TOPIC_ID, 1)
CONFIG = ShareConfig(updates_per_snapshot=3, prune_interval_ms=10_000, cold_snapshot_interval_ms=10_000)


@dataclass
class Room(HostingRoom):
    """The shard and its effects. `log_start` is the offset of the first record of `log`."""

    log: list[LogRecord] = field(default_factory=list)
    log_start: int = 0
    config: ShareConfig = CONFIG
    now_ms: int = 1_000_000_000
    is_enabled: bool = True

    def __post_init__(self) -> None:
        self.prunes: list[Prune] = []
        self.topics = {TOPIC_ID: 4}
        self.shard = ShareShard(self.config, self._has_partition, lambda: self.is_enabled)
        for offset, (key, value) in enumerate(self.log, self.log_start):
            self.shard.replay(LoadedRecord(offset, key, value))
        self.host(self.shard)

    def restarted(self) -> Room:
        """Another coordinator that loads the log."""
        return Room(list(self.log), self.log_start, self.config, self.now_ms, self.is_enabled)

    def _has_partition(self, topic_id: bytes, partition: int) -> bool:
        return partition < self.topics.get(topic_id, 0)

    def on_effect(self, effect: Prune) -> None:
        self.prunes.append(effect)

    def prune(self) -> None:
        """Execute the requested prunes, like the driver."""
        prunes, self.prunes = self.prunes, []
        for prune in prunes:
            at = prune.offset - self.log_start
            if at >= 0:
                assert self.log[at][0] == prune.key, "another record is where the log is pruned"
                del self.log[:at]
                self.log_start = prune.offset

    # Requests. Each returns the response, or None while there is none.

    def initialize(self, state_epoch: int = 0, start_offset: int = -1, key: SharePartitionKey = KEY) -> Any:
        return self.ask(self.shard.on_initialize, key, InitializedPartition(key.partition, state_epoch, start_offset))

    def read(self, leader_epoch: int = -1, key: SharePartitionKey = KEY) -> Any:
        return self.ask(self.shard.on_read, key, ReadPartition(key.partition, leader_epoch))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: SharePartitionKey = KEY,
        leader_epoch: int = -1,
        state_epoch: int = -1,
        start_offset: int = -1,
        count: int = 0,
    ) -> Any:
        changed = batch_messages(tuple(StateBatch(*batch) for batch in batches))
        asked = WrittenPartition(key.partition, state_epoch, leader_epoch, start_offset, count, changed)
        return self.ask(self.shard.on_write, key, asked)

    def delete(self, key: SharePartitionKey = KEY) -> Any:
        return self.ask(self.shard.on_delete, key)

    def summary(self, key: SharePartitionKey = KEY) -> Any:
        return self.ask(self.shard.on_summary, key)

    def delete_topic(self, topic_id: bytes = TOPIC_ID) -> None:
        del self.topics[topic_id]
        self.take(self.shard.on_topics_deleted({topic_id}))

    @property
    def unanswered(self) -> set[int]:
        return set(range(1, self._tickets + 1)) - self.answers.keys()

    # The log

    def state(self, key: SharePartitionKey = KEY) -> ShareState:
        return self.shard.states[key]

    def written(self) -> list[Snapshot | Update | None]:
        """The records of the log."""
        return [decoded(key, value) for key, value in self.log]


def decoded(key: bytes, value: bytes | None) -> Snapshot | Update | None:
    found = decode_key(key)
    assert found is not None
    if value is None:
        return None
    return decode_snapshot(value) if found[0] == SNAPSHOT else decode_update(value)
