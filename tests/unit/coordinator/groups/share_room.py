"""A shard with share groups, whose states a test creates and deletes."""

from __future__ import annotations

from typing import Any

from klamm.coordinator.groups.effects import CreateStates
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.offsets import Alteration, Deletion
from klamm.coordinator.groups.share.state_partitions import StatePartitions, TopicPartitions
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeletedOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    DescribedShareGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from .consumer_room import INTERVAL_MS, ConsumerRoom

GROUP = "shared"
Named = dict[str, tuple[int, ...]]
"""Partitions by topic name."""


class ShareRoom(ConsumerRoom):
    """A shard that hosts share groups."""

    def reloaded(self) -> ShareRoom:
        return ShareRoom(config=self.config, log=self.log, image=self.image, now_ms=self.now_ms)

    @property
    def share(self) -> ShareGroup:
        group = self.shard.modern_groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    # Requests

    def beat_later(self, member_id: str, epoch: int, *, group_id: str = GROUP, **fields: Any) -> int:
        request = ShareGroupHeartbeatRequest(group_id, member_id, epoch, **fields)
        ticket = self.ticket()
        caller = Caller(1, "client", "/127.0.0.1")
        self.take(self.shard.on_share_heartbeat(self.now_ms, ticket, caller, request))
        return ticket

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatResponse:
        answer: ShareGroupHeartbeatResponse = self.answers[self.beat_later(member_id, epoch, **fields)]
        return answer

    def join(self, member_id: str, *names: str) -> ShareGroupHeartbeatResponse:
        return self.beat(member_id, 0, subscribed_topic_names=names or ("t",))

    def settle(self, *member_ids: str) -> dict[str, Named]:
        """Let time pass and members send heartbeats until all have their targets. Returns their assignments."""
        for _ in range(4):
            self.pass_time(INTERVAL_MS)
            for member_id in member_ids:
                answer = self.beat(member_id, self.share.members[member_id].member_epoch)
                assert answer.error_code is ErrorCode.NONE, answer
            self.create_states()
        return {member_id: self.assigned(member_id) for member_id in member_ids}

    def described_share(self, group_id: str = GROUP) -> DescribedShareGroup:
        ticket = self.ticket()
        self.take(self.shard.on_share_describe(self.now_ms, ticket, (group_id,)))
        described: DescribedShareGroup = self.answers[ticket][0]
        return described

    def alter(self, topic: str, **offsets: int) -> Alteration | KafkaError:
        """`p0=5`: partition 0 from offset 5 on."""
        partitions = tuple(AlteredPartition(int(name[1:]), offset) for name, offset in offsets.items())
        request = AlterShareGroupOffsetsRequest(GROUP, (AlteredTopic(topic, partitions),))
        ticket = self.ticket()
        self.take(self.shard.on_alter_share_offsets(self.now_ms, ticket, request))
        found: Alteration | KafkaError = self.answers[ticket]
        return found

    def delete_offsets(self, *topics: str) -> Deletion | KafkaError:
        request = DeleteShareGroupOffsetsRequest(GROUP, tuple(map(DeletedOffsetsTopic, topics)))
        ticket = self.ticket()
        self.take(self.shard.on_delete_share_offsets(self.now_ms, ticket, request))
        found: Deletion | KafkaError = self.answers[ticket]
        return found

    def delete_states(self, group_id: str = GROUP) -> Deletion | KafkaError:
        ticket = self.ticket()
        self.take(self.shard.on_delete_share_states(self.now_ms, ticket, group_id))
        found: Deletion | KafkaError = self.answers[ticket]
        return found

    def delete_group(self) -> ErrorCode:
        ticket = self.ticket()
        self.take(self.shard.on_delete_groups(self.now_ms, ticket, (GROUP,)))
        code: ErrorCode = self.answers[ticket][0].error_code
        return code

    # The share coordinators

    def create_states(self, *, is_done: bool = True) -> list[tuple[int, int, int]]:
        """Answer the shard's requests. Returns partition, state epoch and start offset of each state."""
        effects, self.effects = self.effects, []
        created = []
        for effect in effects:
            assert isinstance(effect, CreateStates)
            places: dict[bytes, set[int]] = {}
            for key, asked in effect.partitions:
                places.setdefault(key.topic_id, set()).add(key.partition)
                created.append((key.partition, asked.state_epoch, asked.start_offset))
            event = self.shard.on_states_created
            self.take(event(self.now_ms, effect.group_id, places, is_done=is_done))
        return created

    # The state

    def states(self) -> dict[str, Any]:
        """Record 15 by topic name: the partitions, or the ids of topics that are being deleted."""
        found = self.share.states or StatePartitions()
        return {
            "initializing": _named(found.initializing),
            "initialized": _named(found.initialized),
            "deleting": sorted(found.deleting.values()),
        }

    def assigned(self, member_id: str) -> Named:
        return {
            self.image.topic_name(topic_id) or "?": partitions
            for topic_id, partitions in self.share.members[member_id].assigned.items()
        }


def _named(topics: TopicPartitions) -> dict[str, list[int]]:
    return {one.name: sorted(one.partitions) for one in topics.values()}
