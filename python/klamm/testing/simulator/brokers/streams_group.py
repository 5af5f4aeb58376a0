"""A streams group with members that come and go: its invariants are those of consumer groups, for tasks (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.coordinator.groups.streams.group import STABLE, StreamsGroup
from klamm.testing.simulator.brokers.group_places import newest_shard
from klamm.testing.simulator.brokers.member_process import Subscription
from klamm.testing.simulator.brokers.membership import MemberGroup
from klamm.testing.simulator.brokers.streams_member import SOURCES, StreamsGroupMember

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.transactional_producer import Work


class StreamsMemberGroup(MemberGroup):
    """One group, as its members see it. All have the same topology."""

    def watched(self, work: Work) -> Work:
        """See `MemberGroup.watched`: it never becomes a group of another protocol."""
        return work

    def _found(self) -> StreamsGroup | None:
        hosted = newest_shard(self._scene, self._brokers, self.group_id)
        group = None if hosted is None else hosted.shard.modern_groups.get(self.group_id)
        return group if isinstance(group, StreamsGroup) else None

    def _join(self, wanted: Subscription, instance_id: str | None) -> None:
        self._count += 1
        process = f"{self.group_id}-{self._count}"
        self.members.append(StreamsGroupMember(self._scene, self, process, Subscription(()), None))

    def _rename(self, member: object, wanted: Subscription) -> None:
        """A member has its topology for good."""

    def check_stable(self) -> str | None:
        """What is not yet as it has to be; None if nothing is."""
        group = self._found()
        if not self.members:
            return None
        if group is None:
            return "there is no such group"
        if group.members.keys() != {member.id for member in self.members} or group.state != STABLE:
            return f"it is {group.state} with {sorted(group.members)}"
        used = sorted(key for member in self.members for key in member.owned)
        if used != sorted((key, index) for key, name in SOURCES.items() for index in self.partitions_of(name)):
            return f"{used} are used"
        for member in self.members:
            active = group.members[member.id].assigned.active
            owned = {(key.encode(), index) for key, epochs in active.items() for index in epochs}
            if member.epoch != group.group_epoch or member.owned != owned:
                return f"{member.id} uses {sorted(member.owned)} in epoch {member.epoch}"
        return None
