"""ShareGroupHeartbeat as a decision: which records to write, which states to create, and what to answer.

This is `shareGroupHeartbeat` of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from klamm._engine.groups import group_hash, target_record_value
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.effects import CreateStates
from klamm.coordinator.groups.modern.group import NO_TARGET
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.modern.target import NewTargets, may_compute
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.coordinator.groups.share.member import JOIN_EPOCH, ShareMember
from klamm.coordinator.groups.share.records import (
    ShareCurrent,
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    StatePartitionsRecord,
)
from klamm.coordinator.groups.share.state_partitions import NamedPartitions, StatePartitions, TopicPartitions, merged
from klamm.coordinator.groups.topics import Topics
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import (
    AssignedTopic,
    ShareAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.messages.share_state import NO_START_OFFSET, InitializedPartition, SharePartitionKey
from klamm.protocol.value import Value

MEMBER_ID_MAX: Final = 36
NO_STATES: Final = StatePartitions()


class ShareHeartbeat(Value):
    """The result of a heartbeat: records to write, states to create after their commit, and the response."""

    records: list[Written]
    creation: CreateStates | None
    response: ShareGroupHeartbeatResponse


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST, with Kafka's text, before the group is looked at."""
    _check(0 < len(request.member_id) <= MEMBER_ID_MAX, None)
    _check(bool(request.member_id.strip()), "MemberId can't be empty.")
    _check(bool(request.group_id.strip()), "GroupId can't be empty.")
    _check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    else:
        _check(request.member_epoch >= -1, "MemberEpoch is invalid.")


def _check(is_valid: bool, message: str | None) -> None:
    if not is_valid:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


class ShareHeartbeats:
    """Decides about heartbeats of members that join or stay."""

    def __init__(self, context: ShardContext, settings: MemberSettings) -> None:
        self._context, self._settings = context, settings

    def decide(self, now_ms: int, caller: Caller, request: ShareGroupHeartbeatRequest) -> ShareHeartbeat:
        """The effect of a heartbeat. Raises KafkaError if it is refused; then nothing changes."""
        is_join = request.member_epoch == JOIN_EPOCH
        group = self.group(request.group_id, creates=is_join)
        member = self._member(group, request)
        step = _Step(self._context, now_ms, group, member, _updated(member, caller, request))
        bump = step.update_epoch()
        step.update_target(self._settings.assignment_interval_ms(group.group_id))
        step.reconcile(has_subscription_changed=bump)
        is_full = is_join or request.subscribed_topic_names is not None
        has_assignment = is_full or step.member.assigned != member.assigned
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=step.member.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms(group.group_id),
            assignment=_assignment(step.member.assigned) if has_assignment else None,
        )
        return ShareHeartbeat(step.records, step.create_states(), response)

    def group(self, group_id: str, *, creates: bool, wanted: str = "Share group") -> ShareGroup:
        """The share group with this id, or a new one, which is not among the groups. Raises GROUP_ID_NOT_FOUND.

        `wanted` is what the message says was not found.
        """
        context = self._context
        group = context.modern.find(group_id, ShareGroup)
        if group is not None:
            return group
        if group_id in context.groups or context.modern.get(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not creates:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{wanted} {group_id} not found.")
        return ShareGroup(group_id)

    def _member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
        member, epoch, size_max = group.members.get(request.member_id), request.member_epoch, self._size_max
        if member is None and len(group.members) >= size_max:
            message = f"The share group has reached its maximum capacity of {size_max} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        if member is None and epoch != JOIN_EPOCH:
            raise unknown_member(group, request.member_id)
        if member is None:
            log.info("group %s: member %s joins", group.group_id, request.member_id)
            return ShareMember(request.member_id)
        _check_epoch(member, epoch)
        return member

    @property
    def _size_max(self) -> int:
        return self._context.config.group_share_max_size


def unknown_member(group: ShareGroup, member_id: str) -> KafkaError:
    """The error for an id that is not a member's."""
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _check_epoch(member: ShareMember, epoch: int) -> None:
    known = member.member_epoch
    if epoch in (JOIN_EPOCH, known, member.previous_member_epoch):
        return
    relation, rest = "greater", ""
    if epoch < known:
        relation = "smaller"
        rest = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}){rest}. The member must abandon all its partitions and rejoin.",
    )


def _updated(member: ShareMember, caller: Caller, request: ShareGroupHeartbeatRequest) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )


def _assignment(assigned: Target) -> ShareAssignment:
    return ShareAssignment(tuple(AssignedTopic(topic_id, partitions) for topic_id, partitions in assigned.items()))


def names_after(group: ShareGroup, before: ShareMember, after: ShareMember | None) -> dict[str, int]:
    """The number of members that subscribe to each topic after a member has changed or left."""
    counts = dict(group.names)
    known = group.members.get(before.member_id)
    for member, by in ((known, -1), (after, 1)):
        for name in () if member is None else member.subscribed_topic_names:
            counts[name] = counts.get(name, 0) + by
    return {name: count for name, count in counts.items() if count}


def metadata_hash(names: Mapping[str, int], topics: Topics) -> int:
    """The hash of the topics that exist, 0 without any."""
    hashes = [(name, found) for name in sorted(names) if (found := topics.hash_of(name)) is not None]
    return group_hash(hashes) if hashes else 0


class _Step:
    """An update of one member of a group, in the order in which Kafka writes the records."""

    def __init__(
        self, context: ShardContext, now_ms: int, group: ShareGroup, before: ShareMember, updated: ShareMember
    ) -> None:
        self._context, self._now_ms, self._group, self._before = context, now_ms, group, before
        self.member = updated
        self.records: list[Written] = []
        self._names: Mapping[str, int] = group.names
        self._group_epoch, self._target_epoch = group.group_epoch, group.assignment_epoch
        self._target = group.target_of(updated.member_id)

    def update_epoch(self) -> bool:
        """Write what changed about the member, and a group epoch if it matters to others. Returns whether it does."""
        group, member = self._group, self.member
        bump = member.subscribed_topic_names != self._before.subscribed_topic_names
        if member != self._before:
            self.records.append(ShareMemberRecord(group.group_id, member.member_id, member))
        if group.assignment_epoch >= group.group_epoch:
            bump |= _must_assign(group)
        if not bump and not group.must_check_hash:
            return False
        if bump:
            self._context.check_names(member.subscribed_topic_names)
        self._names = names_after(group, self._before, member)
        found = metadata_hash(self._names, self._context.topics)
        bump |= found != group.metadata_hash
        if bump:
            self._group_epoch += 1
            self.records.append(ShareGroupEpochRecord(group.group_id, (self._group_epoch, found)))
            self._context.counts.share_rebalances += 1
            log.info("group %s: epoch %d (%s)", group.group_id, self._group_epoch, member.member_id)
        group.hash_checked_epoch = self._group_epoch
        return bump

    def update_target(self, interval_ms: int) -> None:
        """Compute a new target if the group epoch is newer than the present one and enough time has passed."""
        group = self._group
        if group.assignment_epoch >= self._group_epoch or not may_compute(group, interval_ms, self._now_ms):
            return
        targets = self._compute()
        type_ = RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
        self.records.append(NewTargets.of(group, targets, type_, target_record_value))
        self.records.append(ShareTargetEpochRecord(group.group_id, (self._group_epoch, self._now_ms)))
        self._target_epoch = self._group_epoch
        self._target = targets.get(self.member.member_id, NO_TARGET)
        log.info("group %s: a target for epoch %d", group.group_id, self._group_epoch)

    def _compute(self) -> dict[str, Target]:
        group, topics = self._group, self._context.topics
        members = {**group.members, self.member.member_id: self.member}
        named = {name: topics.find(name) for name in self._names}
        counts = {info.topic_id: info.partition_count for info in named.values() if info is not None}
        states = group.states or NO_STATES
        assignable = {topic_id: sorted(one.partitions) for topic_id, one in states.initialized.items()}
        ids = {names: self._ids(names) for names in {one.subscribed_topic_names for one in members.values()}}
        specs = [
            (one.member_id, None, ids[one.subscribed_topic_names], group.target_of(one.member_id))
            for one in members.values()
        ]
        is_homogeneous = all(count == len(members) for count in self._names.values())
        [assignor] = self._context.config.group_share_assignors
        try:
            given = self._context.assign(assignor, specs, counts, homogeneous=is_homogeneous, assignable=assignable)
        except ValueError as error:
            message = f"Failed to compute a new target assignment for epoch {self._group_epoch}: {error}"
            log.exception("group %s: %s", group.group_id, message)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        return {spec[0]: target for spec, target in zip(specs, given, strict=True)}

    def _ids(self, names: frozenset[str]) -> tuple[bytes, ...]:
        found = map(self._context.topics.find, sorted(names))
        return tuple(info.topic_id for info in found if info is not None)

    def reconcile(self, *, has_subscription_changed: bool) -> None:
        """The member takes its target at once, as far as it subscribes to the topics."""
        member = self.member
        if not has_subscription_changed and member.is_reconciled_to(self._target_epoch):
            return
        ids = frozenset(self._ids(member.subscribed_topic_names))
        assigned = {topic_id: parts for topic_id, parts in self._target.items() if topic_id in ids}
        updated = replace(member, assigned=assigned)
        if self._target_epoch != member.member_epoch:
            updated = replace(updated, member_epoch=self._target_epoch, previous_member_epoch=member.member_epoch)
        if updated != member:
            self.member = updated
            current = ShareCurrent(updated.member_epoch, updated.previous_member_epoch, assigned)
            self.records.append(ShareCurrentRecord(self._group.group_id, member.member_id, current))

    def create_states(self) -> CreateStates | None:
        """Write that states of subscribed partitions are created, of which there are none yet."""
        group = self._group
        missing = self._missing(group.states or NO_STATES)
        if not missing:
            return None
        self.records.append(StatePartitionsRecord(group.group_id, (group.states or NO_STATES).begun(missing)))
        return CreateStates(
            group.group_id,
            tuple(
                (
                    SharePartitionKey(group.group_id, topic_id, partition),
                    InitializedPartition(partition, self._group_epoch, NO_START_OFFSET),
                )
                for topic_id, one in missing.items()
                for partition in sorted(one.partitions)
            ),
        )

    def _missing(self, states: StatePartitions) -> TopicPartitions:
        known = states.initialized
        is_recent = (
            self._now_ms - self._group.states_written_ms < self._context.config.group_share_initialize_retry_interval_ms
        )
        if is_recent:
            known = merged(known, states.initializing)
        missing = {}
        for name in sorted(self._names):
            info = self._context.topics.find(name)
            if info is None:
                continue
            begun = known[info.topic_id].partitions if info.topic_id in known else frozenset()
            if len(begun) < info.partition_count:
                missing[info.topic_id] = NamedPartitions(name, frozenset(range(info.partition_count)) - begun)
        return missing


def _must_assign(group: ShareGroup) -> bool:
    """Whether partitions of a subscribed topic have a state and are not assigned, or the other way round."""
    if group.states is None or not group.names:
        return False
    assigned: dict[bytes, set[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        one.name in group.names and assigned.get(topic_id, set()) != one.partitions
        for topic_id, one in group.states.initialized.items()
    )
