"""The steps of a heartbeat as records: member, topology, group epoch, target, and the member's tasks.

The group itself changes later, when the records are applied (Kafka's `GroupMetadataManager.streamsGroupHeartbeat`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from klamm._engine.groups import group_hash
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.modern.target import NewTargets, may_compute
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.assignment import compute
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.reconciliation import reconcile
from klamm.coordinator.groups.streams.records import (
    NOT_VALIDATED,
    MemberMetadata,
    StreamsMetadata,
    StreamsRecord,
    StreamsValue,
    TargetMetadata,
    record_value,
)
from klamm.coordinator.groups.streams.settings import StreamsSettings
from klamm.coordinator.groups.streams.tasks import NO_TASKS, TaskSets
from klamm.coordinator.groups.streams.timers import initial_delay_timer
from klamm.coordinator.groups.streams.topology import ConfiguredTopology, configure, is_same_topology, required_topics
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.streams_messages import ASSIGNMENT_DELAYED, STALE_TOPOLOGY, Status, TaskIds, Topology


class Transition:
    """An update of a group by a member, in the order in which Kafka writes the records."""

    def __init__(
        self, context: ShardContext, settings: StreamsSettings, now_ms: int, group: StreamsGroup, records: list[Written]
    ) -> None:
        """`records` are written before those of the steps."""
        self._context, self._settings, self._now_ms = context, settings, now_ms
        self.group: Final = group
        self.records: Final = records
        self.statuses: Final[list[Status]] = []
        self.group_epoch = group.group_epoch
        self.assignment_configs: dict[str, str] = group.assignment_configs
        self.member: StreamsMember | None = None
        self._metadata_hash = group.metadata_hash
        self._must_raise_epoch = False

    def _write(self, type_: RecordType, value: StreamsValue | None, member_id: str = "") -> None:
        self.records.append(StreamsRecord(type_, self.group.group_id, value, member_id))

    # The steps

    def update_member(self, before: StreamsMember, metadata: MemberMetadata) -> StreamsMember:
        """Write what changed about the member; every change raises the group epoch."""
        self.member = replace(before, metadata=metadata)
        if self.member != before:
            self._write(RecordType.STREAMS_GROUP_MEMBER_METADATA, metadata, before.member_id)
            self._must_raise_epoch = True
        return self.member

    def update_topology(self, sent: Topology | None, known_epoch: int) -> Topology:
        """The topology of the group: the first that a member sends. Raises INVALID_REQUEST for a different one.

        Raises UNKNOWN_SERVER_ERROR if there is none.

        `known_epoch` is the epoch of the topology that the member has.
        """
        stored = self.group.topology
        if stored is None:
            if sent is None:  # the log lost its record; only a joining member sends one
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
            log.info("group %s: topology with epoch %d", self.group.group_id, sent.epoch)
            self._write(RecordType.STREAMS_GROUP_TOPOLOGY, sent)
            return sent
        if sent is not None and sent.epoch >= stored.epoch and not is_same_topology(stored, sent):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        if known_epoch < stored.epoch:
            self.statuses.append(
                Status(
                    STALE_TOPOLOGY,
                    f"The member's topology epoch {known_epoch} is behind the group's topology epoch {stored.epoch}.",
                )
            )
        return stored

    def configure(self, topology: Topology) -> ConfiguredTopology:
        """Decide partition counts and tasks when topology or metadata are new to the group. Raises KafkaError."""
        group, configured = self.group, self.group.configured
        if group.topology is None or configured is None or group.must_check_hash:
            self._metadata_hash = self._hash_of(topology)
            has_changed = self._metadata_hash != group.metadata_hash
            self._must_raise_epoch = self._must_raise_epoch or has_changed
            if group.topology is None or configured is None or has_changed:
                configured = configure(topology, self.partition_count)
                problem = "ready" if configured.problem is None else configured.problem.status_detail
                log.info("group %s: topology of epoch %d: %s", group.group_id, topology.epoch, problem)
        return configured

    def partition_count(self, topic: str) -> int | None:
        """The partition count of a topic; None if it does not exist."""
        found = self._context.topics.find(topic)
        return None if found is None else found.partition_count

    def _hash_of(self, topology: Topology) -> int:
        hashes = ((name, self._context.topics.hash_of(name)) for name in sorted(required_topics(topology)))
        return group_hash((name, value) for name, value in hashes if value is not None)

    def update_epoch(self, configured: ConfiguredTopology) -> None:
        """Raise the group epoch if anything changed that an assignment depends on."""
        group = self.group
        validated = configured.epoch if configured.is_ready else NOT_VALIDATED
        self.assignment_configs = self._settings.assignment_configs(group.group_id)
        has_changed = validated != group.validated_topology_epoch or self.assignment_configs != group.assignment_configs
        if not (self._must_raise_epoch or has_changed):
            return
        self.group_epoch += 1
        configs = tuple(sorted(self.assignment_configs.items()))
        value = StreamsMetadata(self.group_epoch, self._metadata_hash, validated, configs)
        self._write(RecordType.STREAMS_GROUP_METADATA, value)
        self._context.counts.streams_rebalances += 1
        log.info("group %s: epoch %d", group.group_id, self.group_epoch)

    def update_target(self, configured: ConfiguredTopology) -> tuple[int, TaskSets]:
        """The epoch and the member's tasks of the newest target, which is computed if it is due.

        Raises UNKNOWN_SERVER_ERROR if the assignor fails.
        """
        context, group = self._context, self.group
        member_id = "" if self.member is None else self.member.member_id
        if context.timers.deadline_of(initial_delay_timer(group.group_id)) is not None:
            self._delay("Assignment delayed due to the configured initial rebalance delay.")
            return group.assignment_epoch, NO_TASKS
        if group.assignment_epoch >= self.group_epoch:
            return group.assignment_epoch, group.tasks_of(member_id)
        if not may_compute(group, self._settings.assignment_interval_ms(group.group_id), self._now_ms):
            self._delay("Assignment delayed due to the configured assignment interval.")
            return group.assignment_epoch, group.tasks_of(member_id)
        members = dict(group.members)
        if self.member is not None:
            members[member_id] = self.member
        try:
            targets = compute(
                context.assign_tasks, members.values(), group.targets, configured, self.assignment_configs
            )
        except ValueError as error:
            detail = f"Failed to compute a new target assignment for epoch {self.group_epoch}: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, detail) from None
        type_ = RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER
        self.records.append(NewTargets.of(group, targets, type_, record_value))
        self._write(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, TargetMetadata(self.group_epoch, self._now_ms))
        return self.group_epoch, targets.get(member_id, NO_TASKS)

    def _delay(self, detail: str) -> None:
        self.statuses.append(Status(ASSIGNMENT_DELAYED, detail))

    def reconcile(self, target_epoch: int, target: TaskSets, owned: TaskSets | None) -> bool:
        """Move the member towards its target; returns whether anything about it changed."""
        before = self.member
        assert before is not None, "a timer reconciles no member"
        self.member = reconcile(before, target_epoch, target, self.group.owners, owned)
        if self.member == before:
            return False
        value = self.member.current_assignment()
        self._write(RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, before.member_id)
        return True


def check_tasks(configured: ConfiguredTopology, owned: tuple[TaskIds, ...] | None) -> None:
    """Raise INVALID_REQUEST for tasks that the topology does not have, once it is ready."""
    counts = configured.task_counts()
    for ids in owned or () if configured.is_ready else ():
        count = counts.get(ids.subtopology_id)
        if count is None:
            detail = f"Subtopology {ids.subtopology_id} does not exist in the topology."
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        for partition in ids.partitions:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {ids.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {count}",
                )
