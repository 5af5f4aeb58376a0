"""The start offsets of share groups: which states are created and deleted for an administrator.

These are AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92) and the part of DeleteGroups (42) for share groups.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from klamm.coordinator.groups.context import ShardContext
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.heartbeats import NO_STATES, ShareHeartbeats
from klamm.coordinator.groups.share.records import StatePartitionsRecord
from klamm.coordinator.groups.share.state_partitions import (
    UNKNOWN,
    NamedPartitions,
    Places,
    StatePartitions,
    TopicPartitions,
    merged,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.share_groups import (
    AlteredPartitionResult,
    AlteredTopic,
    AlteredTopicResult,
    AlterShareGroupOffsetsRequest,
    DeletedTopicResult,
    DeleteShareGroupOffsetsRequest,
)
from klamm.protocol.messages.share_state import InitializedPartition, SharePartitionKey
from klamm.protocol.value import Value

NOT_EMPTY: Final = "The group is not empty."
OF_UNKNOWN: Final = "This server does not host this topic-partition."
NOTHING: Final = "There is no offset information to delete."


class Alteration(Value):
    """What AlterShareGroupOffsets begins: states to create, and the results as they are if that succeeds."""

    created: tuple[tuple[SharePartitionKey, InitializedPartition], ...]
    results: tuple[AlteredTopicResult, ...]


class Deletion(Value):
    """The start of a deletion: states to delete; and for DeleteShareGroupOffsets the topics without offsets."""

    deleted: tuple[SharePartitionKey, ...] = ()
    refused: tuple[DeletedTopicResult, ...] = ()


class ShareOffsets:
    """Decides about the states of groups without members."""

    def __init__(self, context: ShardContext, heartbeats: ShareHeartbeats) -> None:
        self._context, self._heartbeats = context, heartbeats

    def alter(self, now_ms: int, request: AlterShareGroupOffsetsRequest) -> Alteration:
        """Begin to create states at offsets. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self._heartbeats.group(request.group_id, creates=True)
        check_empty(group)
        added: dict[bytes, NamedPartitions] = {}
        created: dict[SharePartitionKey, InitializedPartition] = {}
        results = []
        for topic in request.topics:
            info = self._context.topics.find(topic.topic_name)
            count = 0 if info is None else info.partition_count
            results.append(_results(topic, count, None if info is None else info.topic_id))
            if info is None:
                continue
            wanted = {one.partition_index: one.start_offset for one in topic.partitions}
            known = {partition: offset for partition, offset in wanted.items() if 0 <= partition < count}
            added[info.topic_id] = NamedPartitions(topic.topic_name, frozenset(known))
            for partition, start_offset in known.items():
                key = SharePartitionKey(request.group_id, info.topic_id, partition)
                created[key] = InitializedPartition(partition, group.group_epoch, start_offset)
        if added:
            self.write(now_ms, group, (group.states or NO_STATES).begun(added))
        return Alteration(tuple(created.items()), tuple(results))

    def delete(self, now_ms: int, request: DeleteShareGroupOffsetsRequest) -> Deletion:
        """Begin to delete the states of topics. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self._heartbeats.group(request.group_id, creates=False, wanted="Group")
        check_empty(group)
        states = group.states
        if states is None:
            return Deletion()
        initialized, deleting = dict(states.initialized), dict(states.deleting)
        deleted: list[SharePartitionKey] = []
        refused = []
        for topic in request.topics:
            info = self._context.topics.find(topic.topic_name)
            code, unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, info is None
            if info is not None and info.topic_id in initialized:
                partitions: Collection[int] = initialized.pop(info.topic_id).partitions
                deleting[info.topic_id] = info.name
            elif info is not None and info.topic_id in deleting:
                partitions = range(info.partition_count)
            else:
                message = OF_UNKNOWN if unknown else NOTHING
                refused.append(DeletedTopicResult(topic.topic_name, error_code=code, error_message=message))
                continue
            deleted += _keys(group, {info.topic_id: partitions})
        self.write(now_ms, group, StatePartitions(states.initializing, initialized, deleting))
        return Deletion(tuple(deleted), tuple(refused))

    def delete_all(self, now_ms: int, group_id: str) -> Deletion:
        """Begin to delete all states of a group; nothing if it is no share group. Raises NON_EMPTY_GROUP."""
        group = self._context.modern.find(group_id, ShareGroup)
        if group is None:
            return Deletion()
        check_empty(group)
        states = group.states
        if states is None:
            return Deletion()
        # A deletion that was begun before is repeated, with all partitions of the topics that still exist.
        found: TopicPartitions = merged(states.initialized, states.initializing)
        for topic_id in states.deleting:
            name = self._context.topics.name_of(topic_id)
            info = None if name is None else self._context.topics.find(name)
            if info is not None:
                found = merged(found, {topic_id: NamedPartitions(info.name, frozenset(range(info.partition_count)))})
        deleting = {topic_id: one.name for topic_id, one in found.items()}
        self.write(now_ms, group, StatePartitions({}, {}, deleting))
        return Deletion(tuple(_keys(group, {topic_id: one.partitions for topic_id, one in found.items()})))

    def on_created(self, now_ms: int, group_id: str, places: Places, *, is_done: bool) -> None:
        """States were created, or could not be."""
        group = self._context.modern.find(group_id, ShareGroup)
        if group is None or not places:
            return
        states = group.states or NO_STATES
        if is_done:
            named = {topic_id: self._context.topics.name_of(topic_id) or UNKNOWN for topic_id in places}
            added = {topic_id: NamedPartitions(named[topic_id], frozenset(found)) for topic_id, found in places.items()}
            self.write(now_ms, group, states.created(added))
        elif states.initializing:
            self.write(now_ms, group, states.failed(places))

    def on_deleted(self, now_ms: int, group_id: str, topic_ids: Collection[bytes]) -> None:
        """The states of topics are deleted."""
        group = self._context.modern.find(group_id, ShareGroup)
        if group is not None and group.states is not None:
            self.write(now_ms, group, group.states.without_deleting(topic_ids))

    def on_topics_deleted(self, now_ms: int, topic_ids: Collection[bytes]) -> None:
        """Forget deleted topics. The share coordinator deletes their states itself."""
        for group in list(self._context.modern):
            if isinstance(group, ShareGroup) and group.states is not None:
                states = group.states.without_topics(topic_ids)
                if states != group.states:
                    self.write(now_ms, group, states)

    def write(self, now_ms: int, group: ShareGroup, states: StatePartitions) -> None:
        """Write record 15. Raises UNKNOWN_SERVER_ERROR if it is too large."""
        self._context.write_records([StatePartitionsRecord(group.group_id, states)])
        self.note_written(now_ms, group.group_id)

    def note_written(self, now_ms: int, group_id: str) -> None:
        """Record 15 of a group was written: its age begins again."""
        written = self._context.modern.find(group_id, ShareGroup)
        if written is not None:
            written.states_written_ms = now_ms


def check_empty(group: ShareGroup) -> None:
    """Raise NON_EMPTY_GROUP for a group with members."""
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)


def _results(topic: AlteredTopic, count: int, topic_id: bytes | None) -> AlteredTopicResult:
    results = tuple(
        AlteredPartitionResult(one.partition_index)
        if 0 <= one.partition_index < count
        else AlteredPartitionResult(one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OF_UNKNOWN)
        for one in topic.partitions
    )
    if topic_id is None:
        return AlteredTopicResult(topic.topic_name, partitions=results)
    return AlteredTopicResult(topic.topic_name, topic_id, results)


def _keys(group: ShareGroup, places: Places) -> list[SharePartitionKey]:
    return [
        SharePartitionKey(group.group_id, topic_id, partition)
        for topic_id, partitions in places.items()
        for partition in sorted(partitions)
    ]
