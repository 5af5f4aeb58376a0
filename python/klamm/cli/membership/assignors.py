"""The assignment of partitions to members, computed by the leader of a group.

Two assignors, named as in Apache Kafka's default pair, so that klamm can share a group with any client. `range` assigns
each member a contiguous range of each topic's partitions. `cooperative-sticky` keeps assignments as far as balance
allows, and assigns a partition to a new member only after its owner has revoked it (KIP-429).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.value import Value

Assigned = dict[str, list[TopicPartition]]
"""By member id."""


class Subscriber(Value):
    """A member as the leader sees it; `generation` is the one in which it received its partitions."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


def assign_ranges(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """A range of each topic for each subscriber; the first ones get one more. Static members come first."""
    assigned: Assigned = {one.member_id: [] for one in subscribers}
    for topic, count in sorted(counts.items()):
        readers = sorted((one for one in subscribers if topic in one.topics), key=_range_order)
        start = 0
        for number, reader in enumerate(readers):
            end = start + count // len(readers) + (number < count % len(readers))
            assigned[reader.member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return assigned


def assign_sticky(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """A balanced assignment with as few moves as possible."""
    readers = {topic: sorted(one.member_id for one in subscribers if topic in one.topics) for topic in counts}
    assigned = _kept(subscribers, counts)
    taken = {partition for owned in assigned.values() for partition in owned}
    for topic, count in sorted(counts.items()):
        for index in range(count if readers[topic] else 0):
            if (topic, index) not in taken:
                assigned[_least(readers[topic], assigned)].append(TopicPartition(topic, index))
    while _move_one(assigned, readers):
        pass
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def assign_cooperatively(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """Like sticky, but a partition that another member owns is assigned in the next rebalance, after its revocation."""
    owners: dict[TopicPartition, set[str]] = {}
    for one in subscribers:
        for partition in one.owned:
            owners.setdefault(partition, set()).add(one.member_id)
    assigned = assign_sticky(subscribers, counts)
    return {
        member: [one for one in partitions if one not in owners or member in owners[one]]
        for member, partitions in assigned.items()
    }


ASSIGNORS: Final[Mapping[str, Callable[[Sequence[Subscriber], Mapping[str, int]], Assigned]]] = {
    "range": assign_ranges,
    "cooperative-sticky": assign_cooperatively,
}
"""In the order of preference."""


def _range_order(one: Subscriber) -> tuple[bool, str]:
    return one.instance_id is None, one.instance_id or one.member_id


def _kept(subscribers: Iterable[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """What members may keep: partitions of subscribed topics that one member alone owns in the newest generation."""
    newest = max((one.generation for one in subscribers if one.owned), default=-1)
    claims: dict[TopicPartition, list[str]] = {}
    for one in subscribers:
        for topic, index in one.owned if one.generation == newest else ():
            if topic in one.topics and index < counts.get(topic, 0):
                claims.setdefault(TopicPartition(topic, index), []).append(one.member_id)
    kept: Assigned = {one.member_id: [] for one in subscribers}
    for partition, members in claims.items():
        if len(members) == 1:
            kept[members[0]].append(partition)
    return kept


def _least(members: Sequence[str], assigned: Assigned) -> str:
    return min(members, key=lambda member: len(assigned[member]))


def _move_one(assigned: Assigned, readers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition to a member with at least two fewer; False if the assignment is balanced."""
    for giver in sorted(assigned, key=lambda member: len(assigned[member]), reverse=True):
        for topic in sorted({topic for topic, _ in assigned[giver]}):
            taker = _least(readers[topic], assigned)
            if len(assigned[taker]) + 2 <= len(assigned[giver]):
                last = next(at for at in reversed(range(len(assigned[giver]))) if assigned[giver][at][0] == topic)
                assigned[taker].append(assigned[giver].pop(last))
                return True
    return False
