"""ConsumerGroupHeartbeat as a decision: which records to write, and what to answer.

This is `consumerGroupHeartbeat` of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember
from klamm.coordinator.groups.consumer.patterns import Patterns
from klamm.coordinator.groups.consumer.reconciliation import Reported, reported_of
from klamm.coordinator.groups.consumer.takeover import Takeover
from klamm.coordinator.groups.consumer.transition import PatternChange, Transition, replacement
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.effects import ResolvePatterns
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.modern.wire import Owned
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import (
    UNCHANGED_MS,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    OwnedTopic,
)
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.value import Value


class Heartbeat(Value):
    """The result of a heartbeat: records to write, the updated member, and the response."""

    records: list[Written]
    member: ConsumerMember
    has_moved: bool
    """Whether the records change what the member owns, or its reconciliation state."""
    resolution: ResolvePatterns | None
    """The resolution of regular expressions to start."""
    response: ConsumerGroupHeartbeatResponse


class Heartbeats:
    """Decides about heartbeats of members that join or stay."""

    def __init__(self, context: ShardContext, settings: MemberSettings, takeover: Takeover, patterns: Patterns) -> None:
        self._context, self._settings, self._takeover, self._patterns = context, settings, takeover, patterns

    def decide(self, now_ms: int, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
        """The effect of a heartbeat. Raises KafkaError if it is refused; then nothing changes."""
        records: list[Written] = []
        is_join = request.member_epoch == JOIN_EPOCH
        reported = reported_partitions(request)
        group = self._takeover.consumer_group(request.group_id, records, creates=is_join)
        check_size(self._context, group, request.member_id)
        member_id = request.member_id or self._context.draw_uuid()
        if request.instance_id is None:
            member = self._dynamic_member(group, member_id, request.member_epoch, reported)
        else:
            member = self._static_member(group, member_id, request, reported, records)
        step = Transition(self._context, self._settings, now_ms, group, member=member, records=records)
        names_changed = step.update_member(_updated(member, caller, request))
        pattern_change = step.update_pattern()
        resolution = self._patterns.due(now_ms, group, member, step.member)
        step.update_epoch(bump=names_changed or pattern_change is PatternChange.CHANGED_AND_RESOLVED)
        step.update_target()
        changed = names_changed or pattern_change is not PatternChange.NONE
        has_moved = step.reconcile(reported, has_subscription_changed=changed)
        has_assignment = is_join or request.is_full or step.has_new_assignment
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=step.member.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms(group.group_id),
            assignment=assignment(step.member.assigned) if has_assignment else None,
        )
        return Heartbeat(records, step.member, has_moved, resolution, response)

    def _dynamic_member(self, group: ConsumerGroup, member_id: str, epoch: int, reported: Reported) -> ConsumerMember:
        member = group.members.get(member_id)
        if member is None:
            if epoch != JOIN_EPOCH:
                raise unknown_member(group, member_id)
            log.info("group %s: member %s joins", group.group_id, member_id)
            return ConsumerMember(member_id)
        _check_epoch(member, epoch, reported)
        return member

    def _static_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        reported: Reported,
        records: list[Written],
    ) -> ConsumerMember:
        instance_id = request.instance_id or ""
        holder = group.static_member(instance_id)
        if request.member_epoch != JOIN_EPOCH:
            held = check_holder(holder, member_id, instance_id)
            _check_epoch(held, request.member_epoch, reported)
            return held
        if holder is None:
            log.info("group %s: static member %s of instance %s joins", group.group_id, member_id, instance_id)
            return group.members.get(member_id) or ConsumerMember(member_id)
        if holder.classic is None and holder.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {holder.member_id} member.",
            )
        log.info("group %s: %s of instance %s replaces %s", group.group_id, member_id, instance_id, holder.member_id)
        member, replacing = replacement(group, holder, member_id)
        records += replacing
        return member


def reported_partitions(request: ConsumerGroupHeartbeatRequest) -> Reported:
    """The partitions that the member reports to own."""
    topics = request.topic_partitions
    return None if topics is None else reported_of((topic.topic_id, topic.partitions) for topic in topics)


def check_size(context: ShardContext, group: ConsumerGroup, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    size_max = context.config.group_consumer_max_size
    if len(group.members) >= size_max and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {size_max} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_holder(holder: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The member that holds an instance id. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it is another one."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    """The error for an id that is not a member's."""
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported) -> None:
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return  # a member may always join again (KAFKA-19233)
    relation = "greater" if epoch > member.member_epoch else "smaller"
    # The response with the newer epoch may be lost; then the member knows of nothing that this epoch brought.
    is_repeated = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if is_repeated and _is_within(reported, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(reported: Reported, assigned: Owned) -> bool:
    if reported is None:
        return False
    return all(
        topic_id in assigned and assigned[topic_id].keys() >= set(partitions)
        for topic_id, partitions in reported.items()
    )


def _has_news(member: ConsumerMember, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request may change the group's data about the member, besides what it owns."""
    return (
        request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.rebalance_timeout_ms != UNCHANGED_MS
        or request.rack_id is not None
        or request.server_assignor is not None
        or request.instance_id not in (None, member.instance_id)
        or caller.client_id != member.client_id
        or caller.client_host != member.client_host
        or member.classic is not None
    )


def _updated(member: ConsumerMember, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    if not _has_news(member, caller, request):
        return member  # as almost always
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    pattern = request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if pattern is None else pattern,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def assignment(owned: Owned) -> HeartbeatAssignment:
    """The partitions that a member may use, as an answer shows them."""
    topics: Iterable[OwnedTopic] = (
        OwnedTopic(topic_id, tuple(sorted(partitions))) for topic_id, partitions in owned.items()
    )
    return HeartbeatAssignment(tuple(topics))
