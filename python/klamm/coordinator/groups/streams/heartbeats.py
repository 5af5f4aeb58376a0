"""StreamsGroupHeartbeat as a decision: which records to write, and what to answer."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.streams.endpoints import endpoints
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.records import MemberMetadata
from klamm.coordinator.groups.streams.request_checks import JOIN_EPOCH
from klamm.coordinator.groups.streams.settings import StreamsSettings
from klamm.coordinator.groups.streams.takeover import find_group, find_or_make_group, member_of
from klamm.coordinator.groups.streams.tasks import AssignedTasks, TaskSets, contains, task_ids, tasks_of
from klamm.coordinator.groups.streams.timers import initial_delay_timer
from klamm.coordinator.groups.streams.topology import ConfiguredTopology
from klamm.coordinator.groups.streams.transition import Transition, check_tasks
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.streams_messages import (
    SHUTDOWN_APPLICATION,
    KeyValue,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from klamm.protocol.value import Value


class Heartbeat(Value):
    """The result of a heartbeat: records to write, the updated member, and the response."""

    records: list[Written]
    member: StreamsMember
    has_moved: bool
    """Whether the records change the member's tasks, or how far it is."""
    configured: ConfiguredTopology
    hash_checked_epoch: int
    response: StreamsGroupHeartbeatResponse


class Heartbeats:
    """Decides about heartbeats of members that join or stay."""

    def __init__(self, context: ShardContext, settings: StreamsSettings) -> None:
        self._context, self._settings = context, settings

    def decide(self, now_ms: int, caller: Caller, request: StreamsGroupHeartbeatRequest) -> Heartbeat:
        """The effect of a heartbeat. Raises KafkaError if it is refused."""
        records: list[Written] = []
        group = self._group(request, records)
        before = self._member(group, request)
        step = Transition(self._context, self._settings, now_ms, group, records)
        joined = step.update_member(before, _updated(before.metadata, caller, request))
        topology = step.update_topology(request.topology, joined.metadata.topology_epoch)
        configured = step.configure(topology)
        check_tasks(configured, request.active_tasks)
        check_tasks(configured, request.standby_tasks)
        step.update_epoch(configured)
        if group.is_empty:
            self._delay_first_target(now_ms, group.group_id)
        target_epoch, target = step.update_target(configured)
        has_moved = step.reconcile(target_epoch, target, _owned(request))
        member = step.member
        assert member is not None, "the member was updated above"
        if request.shutdown_application:
            group.request_shutdown(member.member_id)
        response = self._response(request, before, member, configured, step)
        return Heartbeat(records, member, has_moved, configured, step.group_epoch, response)

    def _group(self, request: StreamsGroupHeartbeatRequest, records: list[Written]) -> StreamsGroup:
        if request.member_epoch != JOIN_EPOCH:
            return find_group(self._context, request.group_id)
        group = find_or_make_group(self._context, request.group_id, records)
        size_max = self._context.config.group_streams_max_size
        if len(group.members) >= size_max:  # as in Kafka, also for a member that joins again
            detail = f"The streams group has reached its maximum capacity of {size_max} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, detail)
        return group

    def _member(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
        if request.member_epoch == JOIN_EPOCH:
            known = group.members.get(request.member_id)
            if known is None:
                log.info("group %s: member %s joins", group.group_id, request.member_id)
            return known or StreamsMember(request.member_id)
        member = member_of(group, request.member_id)
        _check_epoch(member, request)
        return member

    def _delay_first_target(self, now_ms: int, group_id: str) -> None:
        delay_ms = self._settings.initial_rebalance_delay_ms(group_id)
        timer = initial_delay_timer(group_id)
        if delay_ms > 0 and self._context.timers.deadline_of(timer) is None:
            self._context.timers.schedule(timer, now_ms + delay_ms)

    def _response(
        self,
        request: StreamsGroupHeartbeatRequest,
        before: StreamsMember,
        member: StreamsMember,
        configured: ConfiguredTopology,
        step: Transition,
    ) -> StreamsGroupHeartbeatResponse:
        group = step.group
        has_changed = request.member_epoch == JOIN_EPOCH or before.assigned != member.assigned
        # Apache Kafka leaves a task unused whose response was lost, until the next rebalance.
        has_tasks = has_changed or _lacks_tasks(_owned(request), member.assigned)
        if has_changed and member.metadata.user_endpoint is not None:
            group.endpoint_epoch += 1
        by_endpoint = None
        if group.endpoint_epoch != request.endpoint_information_epoch:
            others = [one for one in group.members.values() if one.member_id != member.member_id]
            by_endpoint = endpoints((*others, member), configured, step.partition_count)
        # The epoch of a group that is only now created is lost: it begins at 0 with the group's records.
        is_known = self._context.modern.find(group.group_id, StreamsGroup) is group
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms(group.group_id),
            status=(*step.statuses, *_statuses(group, configured)),
            active_tasks=task_ids(member.assigned.active) if has_tasks else None,
            standby_tasks=task_ids(member.assigned.standby) if has_tasks else None,
            warmup_tasks=task_ids(member.assigned.warmup) if has_tasks else None,
            endpoint_information_epoch=group.endpoint_epoch if is_known else 0,
            partitions_by_user_endpoint=by_endpoint,
        )


def _statuses(group: StreamsGroup, configured: ConfiguredTopology) -> list[Status]:
    statuses = [] if configured.problem is None else [configured.problem]
    if group.shutdown_member is not None:
        detail = (
            f"Streams group member {group.shutdown_member} encountered a fatal error and requested a shutdown for the "
            "entire application."
        )
        statuses.append(Status(SHUTDOWN_APPLICATION, detail))
    return statuses


def _lacks_tasks(owned: TaskSets | None, assigned: AssignedTasks) -> bool:
    """Whether a member reports fewer tasks than it has been assigned."""
    if owned is None:
        return False
    roles = ((owned.active, assigned.active), (owned.standby, assigned.standby), (owned.warmup, assigned.warmup))
    return any(
        not has.get(key, frozenset()).issuperset(tasks) for has, wanted in roles for key, tasks in wanted.items()
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSets | None:
    """The tasks that the member reports to own; None unless it reports all roles."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TaskSets(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def _client_tags(tags: Sequence[KeyValue]) -> tuple[tuple[str, str], ...]:
    """The tags by key. Raises UNKNOWN_SERVER_ERROR for a repeated key, as in Kafka."""
    by_key = {tag.key: tag.value for tag in tags}
    if len(by_key) < len(tags):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the key of a client tag is repeated")
    return tuple(sorted(by_key.items()))


def _updated(known: MemberMetadata, caller: Caller, request: StreamsGroupHeartbeatRequest) -> MemberMetadata:
    """The member with the fields of the request; absent ones are unchanged."""
    tags, timeout_ms = request.client_tags, request.rebalance_timeout_ms
    return MemberMetadata(
        caller.client_id,
        caller.client_host,
        known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        known.topology_epoch if request.topology is None else request.topology.epoch,
        known.process_id if request.process_id is None else request.process_id,
        known.client_tags if tags is None else _client_tags(tags),
        known.user_endpoint if request.user_endpoint is None else request.user_endpoint,
        known.rack_id if request.rack_id is None else request.rack_id,
        known.instance_id,
    )


def _check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's, or its previous one with no task too many."""
    epoch, assigned = request.member_epoch, member.assigned
    if epoch == member.member_epoch:
        return
    # The response with the newer epoch may be lost; then the member knows of nothing that this epoch brought.
    if (
        epoch == member.previous_member_epoch
        and contains(assigned.active, request.active_tasks)
        and contains(assigned.standby, request.standby_tasks)
        and contains(assigned.warmup, request.warmup_tasks)
    ):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )
