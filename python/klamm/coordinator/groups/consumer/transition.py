"""The steps of a member's update, as records: member, patterns, group epoch, target, and what the member owns.

The group itself changes later, when the records are applied.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Final

from klamm._engine.groups import target_record_value
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.consumer.reconciliation import Reconciliation, Reported
from klamm.coordinator.groups.consumer.records import (
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    PatternRecord,
    TargetEpochRecord,
    TargetRecord,
)
from klamm.coordinator.groups.consumer.subscriptions import Subscriptions
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.modern.group import NO_TARGET
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.modern.target import NewTargets, Subscriber, compute, may_compute
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.record_parts import RecordType
from klamm.protocol.errors import ErrorCode, KafkaError


class PatternChange(enum.Enum):
    """What happened to the regular expression of a member's subscription."""

    NONE = "none"
    CHANGED = "changed"
    CHANGED_AND_RESOLVED = "changed and resolved"
    """The group knows the topics already, so the target changes at once."""


class Transition:
    """An update of one member of a group, in the order in which Kafka writes the records."""

    def __init__(
        self,
        context: ShardContext,
        settings: MemberSettings,
        now_ms: int,
        group: ConsumerGroup,
        *,
        member: ConsumerMember,
        records: list[Written],
    ) -> None:
        """`member` is the member before the request, `records` are written before those of the steps.

        A static member that takes over an instance id is the previous one with its new member id.
        """
        self._context, self._settings, self._now_ms = context, settings, now_ms
        self.group: Final = group
        self.before: Final = member
        self.member = member
        self.records: Final = records
        self.group_epoch = group.group_epoch
        self.target_epoch = group.assignment_epoch
        self._target: Target | None = None

    def update_member(self, updated: ConsumerMember) -> bool:
        """Write what changed about the member. Returns whether it names other topics than before."""
        self.member = updated
        if updated == self.before:
            return False
        self.records.append(MemberRecord(self.group.group_id, updated.member_id, updated))
        return updated.subscribed_topic_names != self.before.subscribed_topic_names

    def update_pattern(self) -> PatternChange:
        """Remove a resolved regular expression with its last subscriber. Raises INVALID_REGULAR_EXPRESSION."""
        old, new, group = self.before.pattern, self.member.pattern, self.group
        if self.before.subscribed_topic_regex == self.member.subscribed_topic_regex:
            return PatternChange.NONE
        if old is not None and group.patterns.get(old) == 1:
            self.records.append(PatternRecord(group.group_id, old, None))
        if new is None:
            return PatternChange.CHANGED if old is None else PatternChange.CHANGED_AND_RESOLVED
        if new not in group.patterns:
            self._context.compile(new)
        elif new in group.resolved:
            return PatternChange.CHANGED_AND_RESOLVED
        return PatternChange.CHANGED

    def update_epoch(self, *, bump: bool) -> None:
        """Raise the group epoch if `bump`, or if the metadata hash has changed when it is looked at."""
        group = self.group
        if not bump and not group.must_check_hash:
            return
        if bump:
            self._context.check_names(self.member.subscribed_topic_names)
        metadata_hash = self._subscriptions().metadata_hash(self._context.topics)
        if bump or metadata_hash != group.metadata_hash:
            self.group_epoch += 1
            self.records.append(GroupEpochRecord(group.group_id, (self.group_epoch, metadata_hash)))
            self._context.counts.consumer_rebalances += 1
            log.info("group %s: epoch %d (%s)", group.group_id, self.group_epoch, self.member.member_id)
        group.hash_checked_epoch = self.group_epoch
        if group.has_partition_metadata:
            self.records.append(PartitionMetadataRecord(group.group_id))

    def _subscriptions(self) -> Subscriptions:
        subscriptions = Subscriptions(self.group)
        known = self.group.static_member(self.member.instance_id) or self.group.members.get(self.member.member_id)
        subscriptions.replace(self.before, self.member, is_added=known is None)
        return subscriptions

    def update_target(self) -> None:
        """Compute a new target if the group epoch is newer than the present one and enough time has passed."""
        group = self.group
        if group.assignment_epoch >= self.group_epoch or not self._may_compute():
            self._target = group.target_of(self._holder_id())
            return
        assignor = self._assignor()
        subscribers = self._subscribers()
        homogeneous = self._subscriptions().is_homogeneous
        try:
            targets = compute(
                self._context.assign, assignor, subscribers, self._context.topics, homogeneous=homogeneous
            )
        except ValueError as error:
            message = f"Failed to compute a new target assignment for epoch {self.group_epoch}: {error}"
            log.exception("group %s: %s", group.group_id, message)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        type_ = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
        self.records.append(NewTargets.of(group, targets, type_, target_record_value))
        self.records.append(TargetEpochRecord(group.group_id, (self.group_epoch, self._now_ms)))
        self.target_epoch = self.group_epoch
        self._target = targets.get(self.member.member_id, NO_TARGET)
        log.info("group %s: a target of %s for epoch %d", group.group_id, assignor, self.group_epoch)

    def _may_compute(self) -> bool:
        interval_ms = self._settings.assignment_interval_ms(self.group.group_id)
        return may_compute(self.group, interval_ms, self._now_ms)

    def _holder_id(self) -> str:
        """The member whose target this one has: a static member that returns takes that of its instance id."""
        if self.member.instance_id is None:
            return self.member.member_id
        return self.group.static_members.get(self.member.instance_id, "")

    def _assignor(self) -> str:
        votes = dict(self.group.assignors)
        for member, by in ((self.before, -1), (self.member, 1)):
            name = member.server_assignor
            if name is not None and (by > 0 or name in votes):
                votes[name] = votes.get(name, 0) + by
        chosen = max(votes, key=votes.__getitem__, default="")
        return chosen if votes.get(chosen, 0) > 0 else self._context.config.group_consumer_assignors[0]

    def _subscribers(self) -> list[Subscriber]:
        group, holder_id = self.group, self._holder_id() or self.member.member_id
        members = {one.member_id: one for one in group.members.values() if one.member_id != holder_id}
        members[self.member.member_id] = self.member
        return [
            Subscriber(
                member.member_id,
                member.instance_id,
                group.topics_of(member),
                group.target_of(holder_id if member is self.member else member.member_id),
            )
            for member in members.values()
        ]

    def reconcile(self, reported: Reported, *, has_subscription_changed: bool) -> bool:
        """Move the member towards its target. Returns whether it changed. Raises FENCED_MEMBER_EPOCH."""
        if not has_subscription_changed and self.member.is_reconciled_to(self.target_epoch):
            return False
        names = self.group.topics_of(self.member)
        found = map(self._context.topics.find, names)
        reconciliation = Reconciliation(
            self.target_epoch,
            NO_TARGET if self._target is None else self._target,
            self.group.owner_epoch,
            {info.topic_id for info in found if info is not None},
            reported,
            has_subscription_changed,
        )
        updated = reconciliation.of(self.member)
        if updated == self.member:
            return False
        self.member = updated
        current = CurrentAssignment.of(updated)
        self.records.append(CurrentAssignmentRecord(self.group.group_id, updated.member_id, current))
        return True

    @property
    def has_new_assignment(self) -> bool:
        """Whether the member may use other partitions than before, or has them since another epoch."""
        return self.member is not self.before and self.member.assigned != self.before.assigned


def replacement(group: ConsumerGroup, old: ConsumerMember, member_id: str) -> tuple[ConsumerMember, list[Written]]:
    """A static member under a new member id, which joins with all that the old one has; and the records of that."""
    new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = group.target_of(old.member_id)
    return new, [
        *removal(group.group_id, old.member_id),
        MemberRecord(group.group_id, member_id, new),
        TargetRecord(group.group_id, member_id, target),
        CurrentAssignmentRecord(group.group_id, member_id, CurrentAssignment.of(new)),
    ]


def removal(group_id: str, member_id: str) -> list[Written]:
    """The tombstones of a member, in the order that Kafka can replay."""
    return [
        CurrentAssignmentRecord(group_id, member_id, None),
        TargetRecord(group_id, member_id, None),
        MemberRecord(group_id, member_id, None),
    ]
