"""Groups on the target go on where they stopped on the source: commits, translated, while nobody is a member there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin import groups
from klamm.admin.client import Client
from klamm.admin.groups import TopicPartition
from klamm.client import BrokerError
from klamm.pipelines.mirror.selection import Selection
from klamm.protocol.errors import ErrorCode

Translate = Callable[[str, int, int], tuple[str, int] | None]
"""Of a topic, partition and offset on the source the topic and offset on the target; None where it is not known."""

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
"""What a coordinator says to whom commits as nobody while a group has members."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a group."""

    group: str
    offsets: Mapping[TopicPartition, int]
    """What was committed on the target: nothing where it had as much, or where members commit for themselves."""
    has_members: bool = False

    def after(self, earlier: Moved | None) -> Moved:
        """With what was committed for the group before."""
        return self if earlier is None else replace(self, offsets={**earlier.offsets, **self.offsets})


def sync_groups(source: Client, target: Client, selection: Selection, translate: Translate) -> list[Moved]:
    """Commit on the target what the groups have committed on the source. Raises ClientError."""
    names = [group.name for group in groups.groups(source) if selection.takes(group.name)]
    return [_sync(target, name, translated(groups.committed_offsets(source, name), translate)) for name in names]


def translated(committed: Mapping[TopicPartition, int], translate: Translate) -> dict[TopicPartition, int]:
    """A group's commits as the target has them; those of partitions of which nothing is known are left out."""
    found = {(topic, number): translate(topic, number, offset) for (topic, number), offset in committed.items()}
    return {(there[0], number): there[1] for (_, number), there in found.items() if there is not None}


def forward(
    wanted: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Those that move a group on, as MirrorMaker 2 has it; none beyond the end of a log, which has lost something."""
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
