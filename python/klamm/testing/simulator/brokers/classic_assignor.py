"""The assignor of simulated members with the classic protocol: sticky and cooperative (KIP-429).

A partition that a member gives up is assigned in the rebalance that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
)
from klamm.protocol.messages.group_messages import JoinGroupMember, SyncAssignment

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.member_process import Group

COOPERATIVE: Final = "cooperative-sticky"
EAGER: Final = "range"
"""In this simulation it assigns in the same way, but a member that supports it gives up everything before it joins."""

Place = tuple[str, int]
"""A topic and a partition."""


def named(group: Group, keys: Iterable[Key]) -> tuple[TopicPartitions, ...]:
    """Partitions by the names of their topics."""
    return _listed((name, index) for topic_id, index in sorted(keys) if (name := group.name_of(topic_id)) is not None)


def _listed(places: Iterable[Place]) -> tuple[TopicPartitions, ...]:
    found: dict[str, list[int]] = {}
    for name, index in places:
        found.setdefault(name, []).append(index)
    return tuple(TopicPartitions(name, tuple(indexes)) for name, indexes in found.items())


def assign(group: Group, members: Sequence[JoinGroupMember]) -> tuple[SyncAssignment, ...]:
    """What the leader of a generation assigns."""
    wanted = {member.member_id: decode_subscription(member.metadata) for member in members}
    claimed = _claimed(wanted)
    names = sorted({name for one in wanted.values() for name in one.topics})
    places = [(name, index) for name in names for index in group.partitions_of(name)]
    assigned: dict[str, list[Place]] = {member_id: [] for member_id in wanted}
    for place in places:
        owner = claimed.get(place)
        if owner is not None and place[0] in wanted[owner].topics:
            assigned[owner].append(place)
    for place in places:
        able = [one for one in wanted if place[0] in wanted[one].topics]
        if place not in claimed and able:
            assigned[min(able, key=lambda one: len(assigned[one]))].append(place)
    _share(wanted, assigned, claimed)
    return tuple(
        SyncAssignment(member_id, encode_assignment(Assignment(_listed(sorted(found)))))
        for member_id, found in assigned.items()
    )


def _claimed(wanted: dict[str, Subscription]) -> dict[Place, str]:
    """The owners of partitions. Of two that claim one, the owner in the later generation has it."""
    found: dict[Place, str] = {}
    for member_id, one in sorted(wanted.items(), key=lambda item: item[1].generation_id):
        found.update({(owned.topic, index): member_id for owned in one.owned_partitions for index in owned.partitions})
    return found


def _share(wanted: dict[str, Subscription], assigned: dict[str, list[Place]], claimed: Mapping[Place, str]) -> None:
    """A member that has nothing gets one from the one that has most, once that has given it up."""
    for poor in [member_id for member_id, found in assigned.items() if not found]:
        rich = max(assigned, key=lambda one: len(assigned[one]))
        spare = [place for place in assigned[rich] if place[0] in wanted[poor].topics]
        if len(assigned[rich]) > 1 and spare:
            assigned[rich].remove(spare[-1])
            if spare[-1] not in claimed:
                assigned[poor].append(spare[-1])
