"""How a group begins, and becomes one of another protocol.

1. A group of another protocol begins only where the one before has no members.
2. A migration keeps the members, in an epoch that is not below the one before (KIP-848).

Epochs begin again with a group that replaces an empty one, so that they are compared within one life of it only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm.coordinator.groups.shard import GroupShard

CLASSIC = "classic"


class GroupView(NamedTuple):
    """A group as its coordinator has it."""

    kind: str
    epoch: int
    members: Mapping[str, bool]
    """Whether they use the classic protocol."""

    def of(self, *, is_classic: bool) -> set[str]:
        """The members with one of the protocols."""
        return {member_id for member_id, each in self.members.items() if each is is_classic}


def view_of(shard: GroupShard, group_id: str) -> GroupView | None:
    """The group, if there is one."""
    classic, modern = shard.groups.get(group_id), shard.modern_groups.get(group_id)
    if classic is not None:
        return GroupView(CLASSIC, classic.generation_id, dict.fromkeys(classic.members, True))
    if isinstance(modern, ConsumerGroup):
        members = {member.member_id: member.classic is not None for member in modern.members.values()}
        return GroupView(modern.kind, modern.group_epoch, members)
    return None


class GroupLives:
    """Of one group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.count = 0
        """How often it has begun."""
        self.migrations = 0

    def on_handled(self, before: GroupView | None, after: GroupView | None) -> None:
        """A coordinator has handled a request. Raises InvariantViolatedError."""
        if after is None or (before is not None and before.kind == after.kind):
            return
        if before is None or not before.members:
            self.count += 1
            return
        self.migrations += 1
        lost = before.members.keys() - after.members.keys()
        if after.kind == CLASSIC:
            lost -= before.of(is_classic=False)
            stays = before.of(is_classic=False) & after.members.keys()
        else:
            stays = set[str]()
        # One may leave, or be replaced by another process with its instance id.
        if after.epoch < before.epoch or stays or len(lost) > 1:
            raise InvariantViolatedError(f"{self._group_id} becomes {after}, and was {before}")


class Watched:
    """A request whose handler is looked at before and after its first step, which decides."""

    def __init__(
        self, work: Awaitable[Any], look: Callable[[], GroupView | None], compare: Callable[..., None]
    ) -> None:
        self._work, self._look, self._compare = work, look, compare

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._work.__await__()
        before = self._look()
        try:
            first = next(steps)
        except StopIteration as end:
            self._compare(before, self._look())
            return end.value
        self._compare(before, self._look())
        yield first
        return (yield from steps)
