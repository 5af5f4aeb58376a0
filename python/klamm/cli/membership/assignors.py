"""Who reads which partition: what a group's leader works out for everybody.

Two, named as Apache Kafka's consumer names its default pair, so that klamm can share a group with any client: `range`
gives each member a run of each topic's partitions; `cooperative-sticky` leaves partitions where they are as far as even
shares allow, and hands none over before its owner let go of it (KIP-429).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from klamm.protocol.value import Value

TopicPartition = tuple[str, int]
Assigned = dict[str, list[TopicPartition]]
"""By member id."""


class Subscriber(Value):
    """A member as the leader sees it; `generation` is that in which it got what it owns."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


def assign_ranges(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """A run of each topic to each of its readers, the first ones get one more; static members come first."""
    assigned: Assigned = {one.member_id: [] for one in subscribers}
    for topic, count in sorted(counts.items()):
        readers = sorted((one for one in subscribers if topic in one.topics), key=_range_order)
        start = 0
        for number, reader in enumerate(readers):
            end = start + count // len(readers) + (number < count % len(readers))
            assigned[reader.member_id] += [(topic, index) for index in range(start, end)]
            start = end
    return assigned


def assign_sticky(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """Even shares with as few moves as that takes."""
    readers = {topic: sorted(one.member_id for one in subscribers if topic in one.topics) for topic in counts}
    assigned = _kept(subscribers, counts)
    taken = {partition for owned in assigned.values() for partition in owned}
    for topic, count in sorted(counts.items()):
        for index in range(count if readers[topic] else 0):
            if (topic, index) not in taken:
                assigned[_least(readers[topic], assigned)].append((topic, index))
    while _move_one(assigned, readers):
        pass
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def assign_cooperatively(subscribers: Sequence[Subscriber], counts: Mapping[str, int]) -> Assigned:
    """As sticky, but what another member owns is given to nobody yet: it revokes, joins again, and then it is free."""
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
    """What members may keep: claims of the newest generation, of partitions still wanted, made by one alone."""
    newest = max((one.generation for one in subscribers if one.owned), default=-1)
    claims: dict[TopicPartition, list[str]] = {}
    for one in subscribers:
        for topic, index in one.owned if one.generation == newest else ():
            if topic in one.topics and index < counts.get(topic, 0):
                claims.setdefault((topic, index), []).append(one.member_id)
    kept: Assigned = {one.member_id: [] for one in subscribers}
    for partition, members in claims.items():
        if len(members) == 1:
            kept[members[0]].append(partition)
    return kept


def _least(members: Sequence[str], assigned: Assigned) -> str:
    return min(members, key=lambda member: len(assigned[member]))


def _move_one(assigned: Assigned, readers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition to a member that has at least two fewer; False when nothing is left to even out."""
    for giver in sorted(assigned, key=lambda member: len(assigned[member]), reverse=True):
        for topic in sorted({topic for topic, _ in assigned[giver]}):
            taker = _least(readers[topic], assigned)
            if len(assigned[taker]) + 2 <= len(assigned[giver]):
                last = next(at for at in reversed(range(len(assigned[giver]))) if assigned[giver][at][0] == topic)
                assigned[taker].append(assigned[giver].pop(last))
                return True
    return False
