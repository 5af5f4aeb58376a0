"""A shard with the metadata of a cluster, and consumers that send heartbeats like real clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinator.memory_log import Entry

from klamm._engine.groups import TopicPattern
from klamm._engine.metadata import Image
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.records import ResolvedPattern
from klamm.coordinator.groups.effects import ResolvePatterns
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.runtime.log import LoadedRecord
from klamm.node.views.group_topics import GroupTopics
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    encode_at,
)
from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    OwnedTopic,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.topic_info import TopicInfo

from .harness import Room
from .images import image_of, records_of

GROUP = "consumers"
T = TopicInfo("t", b"t" * 16, 6)
U = TopicInfo("u", b"u" * 16, 3)
REBALANCE_MS = 120_000
SESSION_MS = 45_000
INTERVAL_MS = 1_000
"""`consumer.assignment.interval.ms`."""
Owned = dict[str, tuple[int, ...]]
"""Partitions by topic name."""


@dataclass
class Consumer:
    """A client: its knowledge is that of its last response."""

    room: ConsumerRoom
    member_id: str
    fields: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    told: Owned | None = None
    """The assignment of the last response, if it had one."""

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join, or rejoin after an error, without partitions."""
        self.owned = {}
        self.fields |= fields
        names = () if "subscribed_topic_regex" in self.fields else ("t",)
        values = {"subscribed_topic_names": names, "rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": ()}
        return self._take(self.room.heartbeat_of(self.member_id, 0, **(values | self.fields)))

    def beat(self, *, reports: bool = True, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; with `reports` it contains the owned partitions, which are those of the last assignment."""
        if reports:
            fields.setdefault("topic_partitions", self.room.owned_topics(self.owned))
        instance = {"instance_id": self.fields["instance_id"]} if "instance_id" in self.fields else {}
        return self._take(self.room.heartbeat_of(self.member_id, self.epoch, **(instance | fields)))

    def leave(self, epoch: int = -1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        instance = {"instance_id": self.fields["instance_id"]} if "instance_id" in self.fields else {}
        return self.room.heartbeat_of(self.member_id, epoch, **(instance | fields))

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if answer.error_code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.told = None if answer.assignment is None else self.room.named(answer.assignment.topic_partitions)
            self.owned = self.owned if self.told is None else self.told
        return answer


class ConsumerRoom(Room):
    """A shard that hosts consumer groups."""

    def __init__(
        self,
        *topics: TopicInfo,
        config: GroupConfig | None = None,
        log: Sequence[Entry] | None = None,
        image: Image | None = None,
        now_ms: int = 1_000_000,
    ) -> None:
        self.image = image or image_of(*(topics or (T,))).with_provenance(100, 1, 0)
        self.topics = GroupTopics(lambda: self.image)
        self.group_configs: dict[str, str] = {}
        super().__init__(config or GroupConfig(), log, now_ms)

    def _make_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            self._draw_uuid,
            self.counts,
            topics=self.topics,
            group_configs=lambda group_id, key: self.group_configs.get(key),
        )

    def reloaded(self) -> ConsumerRoom:
        return ConsumerRoom(config=self.config, log=self.log, image=self.image, now_ms=self.now_ms)

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.shard.modern_groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # Metadata

    def change(self, *records: MetadataRecord, changed: Sequence[str], created: bool = False) -> None:
        """Publish newer metadata."""
        newer = self.image.apply([encode_at(record, 30) for record in records])
        self.image = newer.with_provenance(self.image.last_offset + 1, 1, 0)
        self.topics.forget(changed)
        self.take(self.shard.on_metadata(self.now_ms, frozenset(changed), created=created))

    def create_topic(self, topic: TopicInfo) -> None:
        self.change(*records_of(topic), changed=(topic.name,), created=True)

    def add_partitions(self, topic: TopicInfo, count: int) -> None:
        """Add that many partitions."""
        more = topic._replace(partition_count=topic.partition_count + count)
        self.change(*records_of(more)[1 + topic.partition_count :], changed=(topic.name,))

    def delete_topic(self, topic: TopicInfo) -> None:
        self.change(RemoveTopicRecord(topic_id=topic.topic_id), changed=(topic.name,))

    def move_partition(self, topic: TopicInfo, replicas: tuple[int, ...]) -> None:
        change = PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, replicas=replicas, isr=replicas)
        self.change(change, changed=(topic.name,))

    def register_brokers(self, **racks: int) -> None:
        """Brokers by rack."""
        more = [
            RegisterBrokerRecord(
                broker_id=broker, incarnation_id=bytes(16), broker_epoch=1, end_points=(), features=(), rack=rack
            )
            for rack, broker in racks.items()
        ]
        self.change(*more, changed=())

    def named(self, topics: Sequence[OwnedTopic]) -> Owned:
        return {self.image.topic_name(one.topic_id) or "?": tuple(one.partitions) for one in topics}

    def owned_topics(self, owned: Owned) -> tuple[OwnedTopic, ...]:
        ids = ((self.image.topic_id(name) or b"?" * 16, partitions) for name, partitions in owned.items())
        return tuple(OwnedTopic(topic_id, partitions) for topic_id, partitions in ids)

    # Requests

    def consumer(self, member_id: str, **fields: Any) -> Consumer:
        return Consumer(self, member_id, fields)

    def joined(self, member_id: str, **fields: Any) -> Consumer:
        """A consumer that has joined."""
        consumer = self.consumer(member_id, **fields)
        assert consumer.join().error_code is ErrorCode.NONE
        return consumer

    def heartbeat_of_later(
        self, member_id: str, epoch: int, *, version: int = 1, client_id: str = "client", **fields: Any
    ) -> int:
        request = ConsumerGroupHeartbeatRequest(fields.pop("group_id", GROUP), member_id, epoch, **fields)
        ticket = self.ticket()
        caller = Caller(version, client_id, "/127.0.0.1")
        self.take(self.shard.on_consumer_heartbeat(self.now_ms, ticket, caller, request))
        return ticket

    def heartbeat_of(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        answer: ConsumerGroupHeartbeatResponse = self.answers[self.heartbeat_of_later(member_id, epoch, **fields)]
        return answer

    def described(self, group_id: str = GROUP) -> DescribedConsumerGroup:
        ticket = self.ticket()
        self.take(self.shard.on_consumer_describe(self.now_ms, ticket, (group_id,)))
        described: DescribedConsumerGroup = self.answers[ticket][0]
        return described

    def resolve(self) -> None:
        """The driver answers the shard's request to resolve a pattern."""
        effects, self.effects = self.effects, []
        for effect in effects:
            assert isinstance(effect, ResolvePatterns)
            found = {
                pattern: ResolvedPattern(
                    frozenset(self.topics.matching(TopicPattern(pattern))), self.topics.version, self.now_ms
                )
                for pattern in effect.patterns
            }
            self.take(self.shard.on_patterns_resolved(self.now_ms, effect.group_id, found))

    # The log

    def types(self, since: int = 0) -> list[int]:
        """The types of the records from that offset on; those of tombstones are negative."""
        found = []
        for entry in self.log[since:]:
            key, value = (entry.key, entry.value) if isinstance(entry, LoadedRecord) else entry
            found.append((-1 if value is None else 1) * int.from_bytes(key[:2], "big"))
        return found
