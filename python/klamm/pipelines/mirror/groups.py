"""Translates commits of groups to the target, unless a group has members there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin import groups
from klamm.admin.client import Client
from klamm.client import BrokerError
from klamm.pipelines.mirror.selection import Selection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_partition import TopicPartition

Translate = Callable[[str, int, int], tuple[str, int] | None]
"""Maps topic, partition and offset of the source to topic and offset of the target; None if unknown."""

_WITHOUT_MEMBERS: Final = ("Empty", "Dead")
_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""The errors of a coordinator for a commit without a member while a group has members."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result for a group."""

    group: str
    offsets: Mapping[TopicPartition, int]
    """The offsets committed on the target; empty if nothing changed, or if members commit for themselves."""
    has_members: bool = False

    def after(self, earlier: Moved | None) -> Moved:
        """Together with the earlier commits of the group."""
        return self if earlier is None else replace(self, offsets={**earlier.offsets, **self.offsets})


def sync_groups(source: Client, target: Client, selection: Selection, translate: Translate) -> list[Moved]:
    """Commit the translated offsets of groups on the target. Raises ClientError."""
    names = [group.name for group in groups.groups(source) if selection.takes(group.name)]
    return [_sync(target, name, translated(groups.committed_offsets(source, name), translate)) for name in names]


def translated(committed: Mapping[TopicPartition, int], translate: Translate) -> dict[TopicPartition, int]:
    """A group's translated commits; partitions without known offsets are left out."""
    found = {(topic, number): translate(topic, number, offset) for (topic, number), offset in committed.items()}
    return {TopicPartition(there[0], number): there[1] for (_, number), there in found.items() if there is not None}


def forward(
    wanted: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The commits that advance a group, as in MirrorMaker 2; none beyond the end of a log."""
    return {where: offset for where, offset in wanted.items() if there.get(where, -1) < offset <= ends.get(where, -1)}


def _sync(target: Client, name: str, wanted: Mapping[TopicPartition, int]) -> Moved:
    if not wanted:
        return Moved(name, {})
    if groups.state(target, name) not in _WITHOUT_MEMBERS:
        return Moved(name, {}, has_members=True)
    ends = groups.list_offsets(target, dict.fromkeys(wanted, groups.LATEST))
    moves = forward(wanted, groups.committed_offsets(target, name), ends)
    try:
        if moves:
            groups.commit(target, name, moves)
    except BrokerError as error:
        if error.error_code in _HAS_MEMBERS:
            return Moved(name, {}, has_members=True)
        raise
    return Moved(name, moves)
