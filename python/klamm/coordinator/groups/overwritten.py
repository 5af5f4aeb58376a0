"""The snapshot of a group shard before a write: the old values of everything that the write changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.coordinator.groups.classic_group import ClassicGroup
    from klamm.coordinator.groups.records import OffsetAndMetadata
    from klamm.protocol.messages.group_messages import ListedGroup

OffsetPlace = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True, eq=False)
class Overwritten:
    """The values before a write."""

    offsets: dict[str, dict[OffsetPlace, OffsetAndMetadata | None]] = field(default_factory=dict)
    """Per group and partition: the offset, or None."""
    groups: dict[str, ClassicGroup | None] = field(default_factory=dict)
    """Per group id: the classic group, or None."""
    modern: dict[str, ListedGroup | None] = field(default_factory=dict)
    """Per group id: a group of the new protocols as ListGroups shows it, or None."""
    undo: list[Callable[[], None]] = field(default_factory=list)
    """Functions that undo changes which plain reads see before they are committed."""
