"""The snapshot of a group shard before a write: what the write's changes overwrite, noted when they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.coordinator.groups.records import OffsetAndMetadata

if TYPE_CHECKING:
    from klamm.coordinator.groups.classic_group import ClassicGroup

OffsetPlace = tuple[str, int]
"""Topic and partition."""


class Overwritten:
    """What was there before."""

    __slots__ = ("groups", "offsets", "undo")

    def __init__(self) -> None:
        self.offsets: dict[str, dict[OffsetPlace, OffsetAndMetadata | None]] = {}
        """Per group and place: the offset, or None."""
        self.groups: dict[str, ClassicGroup | None] = {}
        """Per group id: the classic group, or None."""
        self.undo: list[Callable[[], None]] = []
        """How to take back the changes that plain reads need not see through."""
