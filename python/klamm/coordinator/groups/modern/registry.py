"""The groups of the newer protocols by id, besides the classic groups of the same shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from klamm.coordinator.groups.modern.group import FoldedGroup
from klamm.coordinator.groups.modern.journal import Journal, value_before
from klamm.coordinator.runtime.log import RecordError

G = TypeVar("G", bound=FoldedGroup[Any, Any])

AnyModernGroup = FoldedGroup[Any, Any]


class ModernGroups:
    """Groups by id. A group's id belongs to one group of any kind."""

    def __init__(self, take_id: Callable[[str, str], None]) -> None:
        """`take_id` is called with id and kind when a record creates a group.

        It removes a simple classic group with this id, and raises RecordError if another group has the id.
        """
        self._take_id = take_id
        self._groups: dict[str, AnyModernGroup] = {}

    def __iter__(self) -> Iterator[AnyModernGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> AnyModernGroup | None:
        """The group with this id."""
        return self._groups.get(group_id)

    def get_before(self, undo: Iterable[Callable[[], None]], group_id: str) -> AnyModernGroup | None:
        """The group with this id before changes; `undo` as for `value_before`."""
        return value_before(undo, self._groups, group_id)

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """The group with this id if it is of this kind."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def create(self, journal: Journal, group: G) -> G:
        """Add a group. Raises RecordError if its id belongs to another."""
        known = self._groups.get(group.group_id)
        if known is not None:
            raise RecordError(f"a record of a {group.kind} group for {group.group_id}, a {known.kind} group")
        self._take_id(group.group_id, group.kind)
        added: AnyModernGroup = group
        journal.put(self._groups, group.group_id, added)
        return group

    def remove(self, journal: Journal, group: AnyModernGroup) -> None:
        """Remove a group whose own record has a tombstone."""
        journal.remove(self._groups, group.group_id)

    def drop(self, journal: Journal, group_id: str) -> None:
        """Remove whatever group has this id: a classic group replaced it."""
        journal.remove(self._groups, group_id)
