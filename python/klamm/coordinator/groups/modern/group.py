"""The state that groups of the new protocols have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.runtime.log import RecordError

NO_TARGET: Final[Target] = {}
FIRST_EPOCH: Final = 1
"""The group epoch and the assignment epoch of a group without records of its own (KAFKA-20268)."""
DELETED_EPOCH: Final = -1
"""The assignment epoch after the tombstone of its record."""


class ModernMember(Protocol):
    """A member, as the base of groups needs it."""

    @property
    def member_id(self) -> str:
        """Its id."""
        ...

    @property
    def member_epoch(self) -> int:
        """The epoch that the member has reached; -1 when its current assignment was removed."""
        ...

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """The topics that it names."""
        ...

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target of this epoch."""
        ...


M = TypeVar("M", bound=ModernMember)


T = TypeVar("T")
"""The target of a member."""


class FoldedGroup(ABC, Generic[M, T]):
    """Epochs, members and targets of a group: the fold of its records.

    Only the functions that apply records change it, through a journal (`modern.journal`), and members are values.
    `hash_checked_epoch` is soft state: it is not restored by a rollback, and it is lost with the shard.
    """

    kind: ClassVar[str]
    """The group type in ListGroups, which is also the protocol type."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """When the target was computed; 0: never, or by a version that did not note it."""
        self.members: Final[dict[str, M]] = {}
        self.targets: Final[dict[str, T]] = {}
        self.names: Final[dict[str, int]] = {}
        """How many members name a topic."""
        self.hash_checked_epoch: int | None = None
        """The group epoch at the last comparison of the metadata hash; None requests a comparison."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The state in ListGroups and the Describe APIs."""

    @abstractmethod
    def tombstones(self) -> Sequence[Any]:
        """The tombstone records that delete the group, in an order that Kafka can replay."""

    @property
    def subscribed_topics(self) -> AbstractSet[str]:
        """The topics that members subscribe to."""
        return self.names.keys()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members subscribe to the topic."""
        return topic in self.subscribed_topics

    @property
    def watched_topics(self) -> AbstractSet[str]:
        """The topics whose changes affect the group."""
        return self.subscribed_topics

    def is_affected_by(self, changed: AbstractSet[str]) -> bool:
        """Whether any of these topics, which changed, is one that the group must know of."""
        # Few topics change at a time, and a group may have many.
        return not self.watched_topics.isdisjoint(changed)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def must_check_hash(self) -> bool:
        """Whether the metadata hash has to be compared: on request, or after a rollback of the last comparison."""
        return self.hash_checked_epoch is None or self.group_epoch < self.hash_checked_epoch

    # Changes, each through a journal.

    def put_member(self, journal: Journal, member: M) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        journal.put(self.members, member.member_id, member)
        self.count_member(journal, old, member)

    def drop_member(self, journal: Journal, member_id: str) -> None:
        """Remove a member whose metadata has a tombstone. Raises RecordError if other records of it remain."""
        member = self.members.get(member_id)
        if member is None:
            return
        if member.member_epoch != DELETED_EPOCH:
            raise RecordError(f"group {self.group_id}: member {member_id} is removed before its assignment")
        if member_id in self.targets:
            raise RecordError(f"group {self.group_id}: member {member_id} is removed before its target")
        journal.remove(self.members, member_id)
        self.count_member(journal, member, None)

    def count_member(self, journal: Journal, old: M | None, new: M | None) -> None:
        """Update the counts over members."""
        before = frozenset() if old is None else old.subscribed_topic_names
        after = frozenset() if new is None else new.subscribed_topic_names
        if before is not after:
            for name in before - after:
                journal.count(self.names, name, -1)
            for name in after - before:
                journal.count(self.names, name, 1)

    def set_epoch(self, journal: Journal, epoch: int, metadata_hash: int) -> None:
        """A new group epoch."""
        journal.assign(self, "group_epoch", epoch)
        journal.assign(self, "metadata_hash", metadata_hash)

    def set_target_epoch(self, journal: Journal, value: tuple[int, int] | None) -> None:
        """The epoch and time of the target; None is a tombstone. Raises RecordError if targets are left."""
        if value is None and self.targets:
            raise RecordError(f"group {self.group_id}: the target epoch is removed before {len(self.targets)} targets")
        epoch, timestamp_ms = (DELETED_EPOCH, 0) if value is None else value
        journal.assign(self, "assignment_epoch", epoch)
        journal.assign(self, "assignment_timestamp_ms", timestamp_ms)

    def set_target(self, journal: Journal, member_id: str, target: T | None) -> None:
        """The target of a member, or its removal."""
        if target is None:
            journal.remove(self.targets, member_id)
        else:
            journal.put(self.targets, member_id, target)

    def set_targets(self, journal: Journal, targets: Mapping[str, T]) -> None:
        """The targets of many members."""
        journal.put_all(self.targets, targets)

    def check_removable(self) -> None:
        """The group's own record has a tombstone. Raises RecordError if more of it is left."""
        left = ("members", len(self.members)), ("targets", len(self.targets))
        for name, count in left:
            if count:
                raise RecordError(f"group {self.group_id} is removed before {count} {name}")
        if self.assignment_epoch != DELETED_EPOCH:
            raise RecordError(f"group {self.group_id} is removed before its target epoch")


class ModernGroup(FoldedGroup[M, Target], Generic[M]):
    """A group whose members are assigned partitions."""

    def target_of(self, member_id: str) -> Target:
        """The member's target, empty if it has none."""
        return self.targets.get(member_id, NO_TARGET)
