"""Groups over the wire: list, describe, delete, and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import LEADER_MOVED, Client, check, retried
from klamm.admin.membership import membership
from klamm.admin.topics import topics
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.membership import DEAD, SHARE, STREAMS, Membership
from klamm.protocol.messages.group_messages import (
    NO_OFFSET,
    CommitPartition,
    CommitTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from klamm.protocol.messages.partitions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from klamm.protocol.messages.share_groups import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetsGroup,
)
from klamm.protocol.topic_partition import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""Special timestamps of ListOffsets (Kafka's `ListOffsetsRequest`)."""

LIST_GROUPS_VERSION_MAX: Final = 5
DELETE_GROUPS_VERSION_MAX: Final = 2
ALTER_SHARE_GROUP_OFFSETS_VERSION_MAX: Final = 0
DESCRIBE_SHARE_GROUP_OFFSETS_VERSION_MAX: Final = 1
OFFSET_COMMIT_VERSION_MAX: Final = 8
OFFSET_FETCH_VERSION_MAX: Final = 7
"""Later versions fetch the offsets of several groups."""
LIST_OFFSETS_VERSION_MAX: Final = 7


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as in ListGroups. `kind` is empty if the broker does not know kinds."""

    name: str
    state: str
    protocol_type: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """The committed offset and the log end offset of a partition; -1 if nothing was committed.

    In a share group `committed` is the offset before which everything was processed, and `known_lag` the coordinator's.
    In a streams group all records of a partition without a committed offset are its lag.
    """

    topic: str
    partition: int
    committed: int
    log_end: int
    known_lag: int | None = None

    @property
    def lag(self) -> int | None:
        """Records after the committed offset; None if nothing was committed."""
        if self.known_lag is not None:
            return self.known_lag
        return None if self.committed < 0 else max(self.log_end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class Group(Membership):
    """A group with its members, and the offsets of the partitions that it reads or has committed."""

    positions: tuple[Position, ...] = ()


def groups(client: Client) -> list[ListedGroup]:
    """The groups of all brokers, sorted by name."""
    found: list[ListedGroup] = []
    for connection in client.brokers():
        answer = connection.ask(ListGroupsRequest(), ListGroupsResponse, LIST_GROUPS_VERSION_MAX)
        check(answer.error_code, f"groups of {connection.address}")
        found += [
            ListedGroup(group.group_id, group.group_state, group.protocol_type, group.group_type)
            for group in answer.groups
        ]
    return sorted(found, key=lambda group: group.name)


def describe(client: Client, name: str) -> Group:
    """One group. Raises ClientError if it does not exist."""
    found = membership(client, name)
    kept = (found.name, found.kind, found.state, found.assignor, found.members, found.epoch, found.assignment_epoch)
    if found.kind == SHARE:
        return Group(*kept, _share_positions(client, name))
    committed = committed_offsets(client, name)
    if found.state == DEAD and not committed:
        raise ClientError(f"group {name}: there is no such group; `klamm groups list` shows what there is")
    read = committed.keys() | {partition for member in found.members for partition in member.assigned}
    if found.kind == STREAMS:
        return Group(*kept, _streams_positions(client, read, committed))
    ends = list_offsets(client, dict.fromkeys(read, LATEST))
    positions = tuple(Position(*where, committed.get(where, NO_OFFSET), ends[where]) for where in sorted(read))
    return Group(*kept, positions)


def _streams_positions(
    client: Client, read: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> tuple[Position, ...]:
    """Streams read a partition without a committed offset from its first record, as kafka-streams-groups counts it.

    A task of a subtopology need not have a partition of each of its topics.
    """
    found = _leaders(client, sorted({topic for topic, _ in read}))
    there = sorted(found.keys() & set(read))
    ends = list_offsets(client, dict.fromkeys(there, LATEST))
    starts = list_offsets(client, dict.fromkeys((one for one in there if one not in committed), EARLIEST))
    return tuple(
        Position(*where, committed.get(where, NO_OFFSET), ends[where], ends[where] - starts[where])
        if where in starts
        else Position(*where, committed[where], ends[where])
        for where in there
    )


def _share_positions(client: Client, name: str) -> tuple[Position, ...]:
    request = DescribeShareGroupOffsetsRequest((OffsetsGroup(name),))
    answer = client.coordinator(name).ask(
        request, DescribeShareGroupOffsetsResponse, DESCRIBE_SHARE_GROUP_OFFSETS_VERSION_MAX
    )
    (group,) = answer.groups
    check(group.error_code, f"offsets of group {name}", group.error_message)
    found = {
        TopicPartition(topic.topic_name, one.partition_index): one for topic in group.topics for one in topic.partitions
    }
    ends = list_offsets(client, dict.fromkeys(found, LATEST))
    return tuple(
        Position(*where, found[where].start_offset, ends[where], found[where].lag if found[where].lag >= 0 else None)
        for where in sorted(found)
    )


def state(client: Client, name: str) -> str:
    """The state of a group: Empty if it has no members, Dead if it does not exist."""
    return membership(client, name).state


def delete(client: Client, names: Iterable[str]) -> None:
    """Delete groups with their offsets. Raises ClientError for the first one that is refused."""
    for name in names:
        request = DeleteGroupsRequest((name,))
        answer = client.coordinator(name).ask(request, DeleteGroupsResponse, DELETE_GROUPS_VERSION_MAX)
        for result in answer.results:
            check(result.error_code, f"group {result.group_id}")


def committed_offsets(client: Client, name: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group by topic and partition."""
    answer = retried(lambda: _fetch_offsets(client.coordinator(name), name))
    committed: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"offset of group {name} in {topic.name}-{one.partition_index}")
            if one.committed_offset >= 0:
                committed[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
    return committed


def start_offsets(client: Client, name: str) -> dict[TopicPartition, int]:
    """The offsets of a share group before which every record was processed, by topic and partition."""
    positions = _share_positions(client, name)
    return {TopicPartition(one.topic, one.partition): one.committed for one in positions if one.committed >= 0}


def alter_start_offsets(client: Client, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Have a share group without members read from other offsets on. Raises BrokerError."""
    altered = tuple(
        AlteredTopic(topic, tuple(AlteredPartition(*entry) for entry in sorted(theirs.items())))
        for topic, theirs in _by_topic(offsets).items()
    )
    request = AlterShareGroupOffsetsRequest(name, altered)
    answer = client.coordinator(name).ask(
        request, AlterShareGroupOffsetsResponse, ALTER_SHARE_GROUP_OFFSETS_VERSION_MAX
    )
    check(answer.error_code, f"group {name}", answer.error_message)
    for topic in answer.responses:
        for one in topic.partitions:
            check(one.error_code, f"group {name}, {topic.topic_name}-{one.partition_index}", one.error_message)


def commit(
    client: Client,
    name: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    version: int = OFFSET_COMMIT_VERSION_MAX,
) -> None:
    """Commit offsets for a member, or for a group without members. Raises BrokerError if the group's state differs.

    `generation`: in the consumer protocol the member epoch, which needs version 9.
    """
    commits = tuple(
        CommitTopic(topic, partitions=tuple(CommitPartition(*entry) for entry in sorted(theirs.items())))
        for topic, theirs in _by_topic(offsets).items()
    )
    request = OffsetCommitRequest(name, commits, generation, member_id, instance_id)
    answer = client.coordinator(name).ask(request, OffsetCommitResponse, version)
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"group {name}, {topic.name}-{one.partition_index}")


def list_offsets(client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset of each partition for a timestamp in ms or a special one; the log end offset after the last record."""
    # A topic that does not exist is an error after a second; a leader that is about to answer has five.
    offsets = retried(
        lambda: retried(lambda: _list_of_leaders(client, wanted), attempts=10, passing=LEADER_MOVED), attempts=5
    )
    past_end = {where: LATEST for where, offset in offsets.items() if offset < 0 and wanted[where] != LATEST}
    return offsets | list_offsets(client, past_end) if past_end else offsets


def _list_of_leaders(client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    leaders = _leaders(client, sorted({topic for topic, _ in wanted}))
    offsets: dict[TopicPartition, int] = {}
    for leader in sorted({leaders[where] for where in wanted}):
        theirs = {where: time for where, time in wanted.items() if leaders[where] == leader}
        offsets |= _list_offsets(client.broker(leader), theirs)
    return offsets


def _leaders(client: Client, names: Sequence[str]) -> dict[TopicPartition, int]:
    leaders: dict[TopicPartition, int] = {}
    for topic in topics(client, names) if names else ():
        for one in topic.partitions:
            if one.leader < 0:
                check(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{one.index}")
            leaders[TopicPartition(topic.name, one.index)] = one.leader
    return leaders


def _list_offsets(connection: Connection, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    places = tuple(
        ListOffsetsTopic(topic, tuple(ListOffsetsPartition(*entry) for entry in sorted(theirs.items())))
        for topic, theirs in _by_topic(wanted).items()
    )
    answer = connection.ask(ListOffsetsRequest(places), ListOffsetsResponse, LIST_OFFSETS_VERSION_MAX)
    offsets: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"{topic.name}-{one.partition_index}")
            offsets[TopicPartition(topic.name, one.partition_index)] = one.offset
    return offsets


def _fetch_offsets(coordinator: Connection, name: str) -> OffsetFetchResponse:
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = coordinator.ask(request, OffsetFetchResponse, OFFSET_FETCH_VERSION_MAX)
    check(answer.error_code, f"offsets of group {name}")
    return answer


def _by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """The values of each topic by partition."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), value in values.items():
        by_topic.setdefault(topic, {})[partition] = value
    return by_topic
