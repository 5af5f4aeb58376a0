"""Moves a member from what it owns towards its target (Kafka's `CurrentAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from klamm.coordinator.groups.consumer.group import NOT_OWNED
from klamm.coordinator.groups.consumer.member import NEXT_STATES, NO_OWNED, ConsumerMember, MemberState
from klamm.coordinator.groups.modern.wire import Owned, Target
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.value import Value

Reported = Mapping[bytes, Sequence[int]] | None
"""The partitions that a member says it owns, by topic id; None: it did not say."""


def reported_of(topics: Iterable[tuple[bytes, Sequence[int]]]) -> Mapping[bytes, Sequence[int]]:
    """What a member reports topic by topic; a topic may be there several times."""
    found: dict[bytes, list[int]] = {}
    for topic_id, partitions in topics:
        found.setdefault(topic_id, []).extend(partitions)
    return found


class Reconciliation(Value):
    """What a member is reconciled with.

    `owner_epoch` gives the epoch of the member that owns a partition, -1 if it is free. `subscribed` are the ids of
    the existing topics that the member subscribes to.
    """

    target_epoch: int
    target: Target
    owner_epoch: Callable[[bytes, int], int]
    subscribed: AbstractSet[bytes]
    reported: Reported
    has_subscription_changed: bool = False

    def of(self, member: ConsumerMember) -> ConsumerMember:
        """The member after this step; the same object if it stays as it is.

        Raises FENCED_MEMBER_EPOCH for a member in a state that this version does not know, until it owns nothing.
        """
        updated = self._next(member)
        assert updated.state in NEXT_STATES[member.state], f"{member.member_id}: {member.state} -> {updated.state}"
        return updated

    def _next(self, member: ConsumerMember) -> ConsumerMember:
        match member.state:
            case MemberState.STABLE if member.member_epoch == self.target_epoch:
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS if self._reports_any(member.pending_revocation):
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            case MemberState.UNKNOWN:
                if self.reported is None or self.reported:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._step(member, self.target_epoch)
            case _:
                return self._step(member, member.member_epoch)

    def _reports_any(self, partitions: Owned) -> bool:
        """Whether the member may still own one of these; it may if it did not say."""
        if self.reported is None:
            return True
        return any(
            not partitions[topic_id].keys().isdisjoint(reported)
            for topic_id, reported in self.reported.items()
            if topic_id in partitions
        )

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke the topics that the member no longer subscribes to, at the same epoch."""
        removed = member.assigned.keys() - self.subscribed
        if not removed:
            return member
        assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in removed}
        pending = dict(member.pending_revocation)
        for topic_id in removed:
            pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
        same_epoch = replace(member, assigned=assigned, previous_member_epoch=member.member_epoch)
        if self._reports_any(pending):
            return replace(same_epoch, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)
        return same_epoch  # given up already

    def _step(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        """The next step: first the member gives up partitions, then it gets those that are free."""
        keep: dict[bytes, dict[int, int]] = {}
        revoke: dict[bytes, dict[int, int]] = {}
        given: dict[bytes, list[int]] = {}
        is_unreleased = False
        for topic_id in sorted(self.target.keys() | member.assigned.keys()):
            # A topic that the member no longer subscribes to has no target (KAFKA-19431).
            target = frozenset(self.target.get(topic_id, ())) if topic_id in self.subscribed else frozenset()
            current = member.assigned.get(topic_id, {})
            own_pending = member.pending_revocation.get(topic_id, {})
            wanted = [one for one in self.target.get(topic_id, ()) if one in target and one not in current]
            # What the member itself has yet to revoke is free for it (KAFKA-19449).
            free = [one for one in wanted if one in own_pending or self.owner_epoch(topic_id, one) == NOT_OWNED]
            is_unreleased |= len(free) < len(wanted)
            kept = {one: assigned_at for one, assigned_at in current.items() if one in target}
            for into, part in ((keep, kept), (revoke, {one: at for one, at in current.items() if one not in target})):
                if part:
                    into[topic_id] = part
            if free:
                given[topic_id] = free
        if revoke and self._reports_any(revoke):
            return self._at(member, epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoke)
        for topic_id, partitions in given.items():
            keep[topic_id] = {**keep.get(topic_id, {}), **dict.fromkeys(partitions, self.target_epoch)}
        state = MemberState.UNRELEASED_PARTITIONS if is_unreleased else MemberState.STABLE
        return self._at(member, self.target_epoch, state, keep, NO_OWNED)

    def _at(
        self, member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, pending: Owned
    ) -> ConsumerMember:
        return replace(
            member,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )
