"""A consumer group: the fold of its records (Kafka's `ConsumerGroup`)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import ClassVar, Final

from klamm.coordinator.groups.consumer.member import ConsumerMember, MemberState
from klamm.coordinator.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    PatternRecord,
    ResolvedPattern,
    TargetEpochRecord,
    TargetRecord,
)
from klamm.coordinator.groups.modern.group import ModernGroup
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.wire import Owned
from klamm.coordinator.runtime.log import RecordError

CONSUMER: Final = "consumer"
EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
NOT_OWNED: Final = -1
NEVER_MS: Final = -(2**63)


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A consumer group.

    1. `owners` has, for each partition that a member has assigned or pending revocation, the epoch of that member;
       so at most one member owns a partition.
    2. `patterns` counts the subscribers of each regular expression. `resolved` may lack some of these.
    """

    kind: ClassVar[str] = CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: Final[dict[str, str]] = {}
        """Member ids by instance id."""
        self.assignors: Final[dict[str, int]] = {}
        """How many members name a server-side assignor."""
        self.patterns: Final[dict[str, int]] = {}
        self.resolved: Final[dict[str, ResolvedPattern]] = {}
        self.matched: Final[dict[str, int]] = {}
        """How many resolved regular expressions match a topic."""
        self.owners: Final[dict[tuple[bytes, int], int]] = {}
        self.classic_members = 0
        """How many members use the classic protocol."""
        self.classic_protocols: Final[dict[str, int]] = {}
        """How many of these support a protocol, by its name."""
        self.has_partition_metadata = False
        """Whether the log has a record 4 of Kafka 4.0."""
        self._reconciled: Final[dict[int, int]] = {}
        """How many members are stable, by epoch."""

    @property
    def state(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        is_reconciled = self._reconciled.get(self.assignment_epoch, 0) == len(self.members)
        return STABLE if is_reconciled else RECONCILING

    @property
    def subscribed_topics(self) -> AbstractSet[str]:
        """The topics that members name, and those that their regular expressions matched."""
        return self.names.keys() | self.matched.keys() if self.matched else self.names.keys()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members name the topic, or a regular expression matched it; without a copy of all topics."""
        return topic in self.names or topic in self.matched

    def is_affected_by(self, changed: AbstractSet[str]) -> bool:
        """Whether the group subscribes to any of these topics, which changed."""
        return not (self.names.keys().isdisjoint(changed) and self.matched.keys().isdisjoint(changed))

    def owner_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that owns a partition, -1 if it is free."""
        return self.owners.get((topic_id, partition), NOT_OWNED)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that holds an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def topics_of(self, member: ConsumerMember) -> AbstractSet[str]:
        """The topics that a member subscribes to. An unresolved regular expression matches nothing."""
        resolved = None if member.pattern is None else self.resolved.get(member.pattern)
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor with the most votes; None if no member names one."""
        return max(self.assignors, key=self.assignors.__getitem__, default=None)

    @property
    def last_resolved(self) -> ResolvedPattern:
        """One of the resolved regular expressions: all are resolved together."""
        return next(iter(self.resolved.values()), ResolvedPattern(frozenset(), 0, NEVER_MS))

    # Changes

    def count_member(self, journal: Journal, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Update the counts over members."""
        super().count_member(journal, old, new)
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            if member.server_assignor is not None:
                journal.count(self.assignors, member.server_assignor, by)
            if member.pattern is not None:
                journal.count(self.patterns, member.pattern, by)
            if member.state is MemberState.STABLE:
                journal.count(self._reconciled, member.member_epoch, by)
            if member.classic is not None:
                journal.assign(self, "classic_members", self.classic_members + by)
                for protocol in member.classic.protocols:
                    journal.count(self.classic_protocols, protocol.name, by)
        self._count_instance(journal, old, new)
        self._count_owned(journal, old, new)

    def _count_instance(self, journal: Journal, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        before, after = (None if member is None else member.instance_id for member in (old, new))
        # A member that joins again may name another instance id.
        if old is not None and before is not None and before != after and self._holds(old, before):
            journal.remove(self.static_members, before)
        if new is not None and after is not None and self.static_members.get(after) != new.member_id:
            journal.put(self.static_members, after, new.member_id)

    def _holds(self, member: ConsumerMember, instance_id: str) -> bool:
        return self.static_members.get(instance_id) == member.member_id

    def _count_owned(self, journal: Journal, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None and new is not None and _owns_the_same(old, new):
            return
        if old is not None:
            self._release(journal, old.assigned, old.member_epoch)
            self._release(journal, old.pending_revocation, old.member_epoch)
        if new is not None:
            self._own(journal, new.assigned, new.member_epoch)
            self._own(journal, new.pending_revocation, new.member_epoch)

    def _release(self, journal: Journal, partitions: Owned, epoch: int) -> None:
        for topic_id, epochs in partitions.items():
            for partition in epochs:
                # Compaction may hide that the partition was taken from this member before (KAFKA-19862).
                if self.owners.get((topic_id, partition)) == epoch:
                    journal.remove(self.owners, (topic_id, partition))

    def _own(self, journal: Journal, partitions: Owned, epoch: int) -> None:
        for topic_id, epochs in partitions.items():
            for partition in epochs:
                owner_epoch = self.owners.get((topic_id, partition))
                if owner_epoch is not None and owner_epoch >= epoch:
                    name = f"{topic_id.hex()}-{partition}"
                    raise RecordError(
                        f"group {self.group_id}: {name} is assigned at epoch {epoch} while it is owned at {owner_epoch}"
                    )
                journal.put(self.owners, (topic_id, partition), epoch)

    def set_current(self, journal: Journal, member_id: str, current: CurrentAssignment) -> None:
        """Set the partitions that a member owns; an unknown member is created."""
        member = self.members.get(member_id) or ConsumerMember(member_id)
        self.put_member(journal, with_current(member, current))

    def set_resolved(self, journal: Journal, pattern: str, resolved: ResolvedPattern | None) -> None:
        """The topics of a regular expression, or their removal."""
        before = self.resolved.get(pattern)
        for found, by in ((before, -1), (resolved, 1)):
            for topic in () if found is None else found.topics:
                journal.count(self.matched, topic, by)
        if resolved is None:
            journal.remove(self.resolved, pattern)
        else:
            journal.put(self.resolved, pattern, resolved)

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[ConsumerRecord]:
        """The tombstones that delete the group; `renamed` has the ids of members that are replaced before these."""
        group_id, renamed = self.group_id, renamed or {}
        members = [renamed.get(member_id, member_id) for member_id in self.members]
        made: list[ConsumerRecord] = [CurrentAssignmentRecord(group_id, one, None) for one in members]
        strays = (one for one in self.targets if one not in self.members)
        made += [TargetRecord(group_id, one, None) for one in (*members, *strays)]
        made.append(TargetEpochRecord(group_id, None))
        made += [MemberRecord(group_id, one, None) for one in members]
        made += [PatternRecord(group_id, pattern, None) for pattern in self.resolved]
        return [*made, PartitionMetadataRecord(group_id), GroupEpochRecord(group_id, None)]


def _owns_the_same(old: ConsumerMember, new: ConsumerMember) -> bool:
    is_same = old.assigned is new.assigned and old.pending_revocation is new.pending_revocation
    return is_same and old.member_epoch == new.member_epoch


def with_current(member: ConsumerMember, current: CurrentAssignment) -> ConsumerMember:
    """The member updated from a record of type 8."""
    return replace(
        member,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned=current.assigned,
        pending_revocation=current.pending_revocation,
    )


def with_metadata(member: ConsumerMember, metadata: ConsumerMember) -> ConsumerMember:
    """The member updated from a record of type 5."""
    return replace(
        metadata,
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
    )
