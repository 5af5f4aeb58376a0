"""Consumer groups over the wire: list, describe, delete, and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import LEADER_MOVED, Client, check, retried
from klamm.client import ClientError
from klamm.client.connection import Connection, Entity
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode

LATEST: Final = -1
EARLIEST: Final = -2
"""Special timestamps of ListOffsets (facts 6.9)."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as ListGroups names it."""

    name: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class Position:
    """What a group committed for a partition, and where its log ends; -1 for a commit that there is not."""

    topic: str
    partition: int
    committed: int
    log_end: int

    @property
    def lag(self) -> int | None:
        """Records not yet committed; None when nothing was committed."""
        return None if self.committed < 0 else max(self.log_end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class Group:
    """One group with its members and committed offsets."""

    name: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    positions: tuple[Position, ...]


def groups(client: Client) -> list[ListedGroup]:
    """Every group of every broker, sorted by name."""
    found: list[ListedGroup] = []
    for connection in client.brokers():
        answer = connection.request(ApiKey.LIST_GROUPS, 4)
        check(answer.error_code, f"groups of {connection.address}")
        found += [
            ListedGroup(group.group_id, getattr(group, "group_state", ""), group.protocol_type)
            for group in answer.groups
        ]
    return sorted(found, key=lambda group: group.name)


def describe(client: Client, name: str) -> Group:
    """One group. Raises ClientError when it does not exist."""
    coordinator = client.coordinator(name)
    (found,) = retried(lambda: _describe(coordinator, name))
    members = tuple(
        Member(one.member_id, getattr(one, "group_instance_id", None), one.client_id, one.client_host.lstrip("/"))
        for one in found.members
    )
    committed = committed_offsets(client, name)
    if found.group_state == "Dead" and not committed:
        raise ClientError(f"group {name}: there is no such group; `klamm groups list` shows what there is")
    ends = list_offsets(client, dict.fromkeys(committed, LATEST))
    positions = tuple(Position(*where, committed[where], ends[where]) for where in sorted(committed))
    return Group(name, found.group_state, found.protocol_data, members, positions)


def state(client: Client, name: str) -> str:
    """A group's state in Kafka's words: Empty where it has no members, Dead where it does not exist."""
    coordinator = client.coordinator(name)
    (found,) = retried(lambda: _describe(coordinator, name))
    return str(found.group_state)


def delete(client: Client, names: Iterable[str]) -> None:
    """Delete groups with their offsets. Raises ClientError for the first refused."""
    for name in names:
        answer = client.coordinator(name).request(ApiKey.DELETE_GROUPS, 2, groups_names=[name])
        for result in answer.results:
            check(result.error_code, f"group {result.group_id}")


def committed_offsets(client: Client, name: str) -> dict[TopicPartition, int]:
    """What a group committed, by topic and partition."""
    coordinator = client.coordinator(name)
    answer = retried(lambda: _fetch_offsets(coordinator, name))
    committed: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"offset of group {name} in {topic.name}-{one.partition_index}")
            if one.committed_offset >= 0:
                committed[topic.name, one.partition_index] = one.committed_offset
    return committed


def commit(
    client: Client,
    name: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> None:
    """Commit offsets for a member, or for a group without any. Raises BrokerError when it is not as said."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
                for (_, partition), offset in sorted(wanted.items())
            ],
        }
        for topic, wanted in _by_topic(offsets).items()
    ]
    coordinator = client.coordinator(name)
    answer = coordinator.request(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=name,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"group {name}, {topic.name}-{one.partition_index}")


def list_offsets(client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset of each partition's timestamp in ms, or special timestamp. Past the last record: the log's end."""
    offsets = retried(lambda: _list_of_leaders(client, wanted), attempts=10, passing=LEADER_MOVED)
    past_end = {where: LATEST for where, offset in offsets.items() if offset < 0 and wanted[where] != LATEST}
    return offsets | list_offsets(client, past_end) if past_end else offsets


def _list_of_leaders(client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    leaders = _leaders(client, sorted({topic for topic, _ in wanted}))
    offsets: dict[TopicPartition, int] = {}
    for leader in sorted({leaders[where] for where in wanted}):
        theirs = {where: time for where, time in wanted.items() if leaders[where] == leader}
        offsets |= _list_offsets(client.broker(leader), theirs)
    return offsets


def _leaders(client: Client, topics: Sequence[str]) -> dict[TopicPartition, int]:
    leaders: dict[TopicPartition, int] = {}
    for topic in client.metadata(topics).topics if topics else ():
        check(topic.error_code, f"topic {topic.name}")
        for one in topic.partitions:
            if one.leader_id < 0:
                check(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{one.partition_index}")
            leaders[topic.name, one.partition_index] = one.leader_id
    return leaders


def _list_offsets(connection: Connection, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": partition, "current_leader_epoch": -1, "timestamp": time}
                for (_, partition), time in sorted(theirs.items())
            ],
        }
        for topic, theirs in _by_topic(wanted).items()
    ]
    answer = connection.request(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
    offsets: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"{topic.name}-{one.partition_index}")
            offsets[topic.name, one.partition_index] = one.offset
    return offsets


def _describe(coordinator: Connection, name: str) -> Sequence[Entity]:
    answer = coordinator.request(ApiKey.DESCRIBE_GROUPS, 5, groups=[name], include_authorized_operations=False)
    for group in answer.groups:
        check(group.error_code, f"group {name}")
    described: Sequence[Entity] = answer.groups
    return described


def _fetch_offsets(coordinator: Connection, name: str) -> Entity:
    answer = coordinator.request(ApiKey.OFFSET_FETCH, 7, group_id=name, topics=None, require_stable=False)
    check(answer.error_code, f"offsets of group {name}")
    return answer


def _by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[TopicPartition, int]]:
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for where, value in values.items():
        by_topic.setdefault(where[0], {})[where] = value
    return by_topic
