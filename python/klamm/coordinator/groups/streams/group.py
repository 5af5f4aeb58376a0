"""A streams group: the fold of its records (Kafka's `StreamsGroup`)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import ClassVar, Final

from klamm.coordinator.groups.modern.group import FoldedGroup
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.member import MemberState, StreamsMember
from klamm.coordinator.groups.streams.records import CurrentAssignment, MemberMetadata, StreamsMetadata, StreamsRecord
from klamm.coordinator.groups.streams.task_owners import TaskOwners
from klamm.coordinator.groups.streams.tasks import NO_TASKS, TaskSets
from klamm.coordinator.groups.streams.topology import ConfiguredTopology, required_topics, subtopologies_by_input
from klamm.protocol.messages.streams_messages import Topology

STREAMS: Final = "streams"
EMPTY: Final = "Empty"
NOT_READY: Final = "NotReady"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
STATES: Final = (EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE)
NO_TOPICS: Final[AbstractSet[str]] = frozenset()


class StreamsGroup(FoldedGroup[StreamsMember, TaskSets]):
    """A streams group.

    1. `owners` has the processes of every task that a member has assigned or pending revocation.
    2. The topology stays while the group exists, also without members.
    3. `configured`, if known, was computed from the topology and the topics of `metadata_hash`.

    Soft state, which neither a rollback nor a load restores: `shutdown_member`, `endpoint_epoch`. `configured` is
    restored by a rollback, and not by a load.
    """

    kind: ClassVar[str] = STREAMS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: Topology | None = None
        self.validated_topology_epoch = 0
        """The epoch of the topology whose topics all exist; -1 if some do not, 0 before the first record."""
        self.assignment_configs: dict[str, str] = {}
        """The configs with which the last group epoch was created."""
        self.owners: Final = TaskOwners()
        self.required_topics: AbstractSet[str] = NO_TOPICS
        """The topics that must exist."""
        self.subtopology_of: dict[str, str] = {}
        """The subtopology that reads each input topic."""
        self._reconciled: Final[dict[int, int]] = {}
        """How many members are stable, by epoch."""
        self.configured: ConfiguredTopology | None = None
        """The topology with the partition counts of the topics; None: it must be computed."""
        self.shutdown_member: str | None = None
        """The first member that requested the shutdown of the application since the group was empty."""
        self.endpoint_epoch = 0
        """Rises when a member that can be queried gets other tasks."""

    @property
    def state(self) -> str:
        """One of STATES."""
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        is_reconciled = self._reconciled.get(self.assignment_epoch, 0) == len(self.members)
        return STABLE if is_reconciled else RECONCILING

    @property
    def subscribed_topics(self) -> AbstractSet[str]:
        """The topics that the members read: none while the group is empty, so that its offsets expire (KAFKA-19372)."""
        return self.subtopology_of.keys() if self.members else NO_TOPICS

    @property
    def watched_topics(self) -> AbstractSet[str]:
        """The topics that the topology needs, also while the group is empty."""
        return self.required_topics

    def tasks_of(self, member_id: str) -> TaskSets:
        """The member's target, empty if it has none."""
        return self.targets.get(member_id, NO_TASKS)

    def request_shutdown(self, member_id: str) -> None:
        """A member requests that all members shut down."""
        self.shutdown_member = self.shutdown_member or member_id

    # Changes

    def count_member(self, journal: Journal, old: StreamsMember | None, new: StreamsMember | None) -> None:
        """Update the state derived from members."""
        for member, by in ((old, -1), (new, 1)):
            if member is not None and member.state is MemberState.STABLE:
                journal.count(self._reconciled, member.member_epoch, by)
        self.owners.update(journal, old, new)
        if not self.members:
            self.shutdown_member = None

    def set_metadata(self, journal: Journal, value: StreamsMetadata) -> None:
        """Record 17."""
        self.set_epoch(journal, value.epoch, value.metadata_hash)
        journal.assign(self, "validated_topology_epoch", value.validated_topology_epoch)
        journal.assign(self, "assignment_configs", dict(value.assignment_configs))

    def set_topology(self, journal: Journal, topology: Topology | None) -> None:
        """Record 23."""
        journal.assign(self, "topology", topology)
        journal.assign(self, "required_topics", NO_TOPICS if topology is None else required_topics(topology))
        journal.assign(self, "subtopology_of", {} if topology is None else subtopologies_by_input(topology))
        journal.assign(self, "configured", None)

    def set_member(self, journal: Journal, member_id: str, metadata: MemberMetadata) -> None:
        """Record 19; an unknown member is created."""
        member = self.members.get(member_id) or StreamsMember(member_id)
        self.put_member(journal, replace(member, metadata=metadata))

    def set_current(self, journal: Journal, member_id: str, current: CurrentAssignment | None) -> None:
        """Record 22; an unknown member is created by a value."""
        member = self.members.get(member_id)
        if member is not None or current is not None:
            self.put_member(journal, (member or StreamsMember(member_id)).with_current_assignment(current))

    # Records

    def tombstone(self, type_: RecordType, member_id: str = "") -> StreamsRecord:
        """The tombstone of a record of this group."""
        return StreamsRecord(type_, self.group_id, None, member_id)

    def tombstones(self) -> list[StreamsRecord]:
        """The tombstones that delete the group; Kafka can replay them in this order."""
        strays = (one for one in self.targets if one not in self.members)
        return [
            *(self.tombstone(RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, one) for one in self.members),
            *(
                self.tombstone(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, one)
                for one in (*self.members, *strays)
            ),
            self.tombstone(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA),
            *(self.tombstone(RecordType.STREAMS_GROUP_MEMBER_METADATA, one) for one in self.members),
            self.tombstone(RecordType.STREAMS_GROUP_METADATA),
            self.tombstone(RecordType.STREAMS_GROUP_TOPOLOGY),
        ]
