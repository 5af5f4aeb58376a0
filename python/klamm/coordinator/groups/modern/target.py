"""When and how the target of a group is computed (Kafka's `TargetAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from klamm.coordinator.groups.modern import wire
from klamm.coordinator.groups.modern.group import FoldedGroup
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups
from klamm.coordinator.groups.modern.wire import Target
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.topics import Topics
from klamm.coordinator.runtime.log import LogRecord
from klamm.protocol.value import Value

MemberSpec = tuple[str, str | None, Sequence[bytes], Mapping[bytes, Sequence[int]]]
"""Member id, instance id, subscribed topic ids, and the present target."""


class Assign(Protocol):
    """An assignor: `klamm._engine.groups.assign`."""

    def __call__(
        self,
        assignor: str,
        members: Sequence[MemberSpec],
        partitions: Mapping[bytes, int],
        *,
        homogeneous: bool,
        assignable: Mapping[bytes, Sequence[int]] | None = None,
    ) -> Sequence[Target]:
        """The target of each member, of the partitions in `assignable` if that is given. Raises ValueError."""
        ...


class Subscriber(NamedTuple):
    """A member for which a target is computed."""

    member_id: str
    instance_id: str | None
    topics: Collection[str]
    target: Target


class NewTargets(Value):
    """The targets that a computation changed: a record for each member, encoded and applied together.

    A group may have thousands of members, and the event loop waits meanwhile.
    """

    group_id: str
    targets: Mapping[str, Any]
    """By member."""
    record_type: RecordType
    encoded_value: Callable[[Any], bytes]
    """The value of the record of a target."""

    def encoded(self) -> list[LogRecord]:
        """Keys and values."""
        group_id, type_, value = self.group_id, self.record_type, self.encoded_value
        return [(wire.key(type_, group_id, member_id), value(target)) for member_id, target in self.targets.items()]

    @staticmethod
    def of(
        group: FoldedGroup[Any, Any], targets: Mapping[str, Any], type_: RecordType, value: Callable[[Any], bytes]
    ) -> NewTargets:
        """The targets that differ from the group's."""
        known = group.targets.get
        changed = {member_id: target for member_id, target in targets.items() if target != known(member_id)}
        return NewTargets(group.group_id, changed, type_, value)


def apply_targets(groups: ModernGroups, journal: Journal, new: NewTargets) -> None:
    """Apply the records. Those of the group and of its members come before them."""
    group = groups.get(new.group_id)
    assert group is not None, new.group_id
    group.set_targets(journal, new.targets)


def may_compute(group: FoldedGroup[Any, Any], interval_ms: int, now_ms: int) -> bool:
    """Whether a new target may be computed now.

    The first one is not delayed. An interval of 0 permits it also after the clock was set back.
    """
    last_ms = group.assignment_timestamp_ms
    return last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms


def compute(
    assign: Assign, assignor: str, subscribers: Iterable[Subscriber], topics: Topics, *, homogeneous: bool
) -> dict[str, Target]:
    """The target of each member. Topics that do not exist are left out. Raises ValueError if the assignor fails."""
    partitions: dict[bytes, int] = {}
    ids_of: dict[frozenset[str], tuple[bytes, ...]] = {}
    specs: list[MemberSpec] = []
    for one in subscribers:
        names = frozenset(one.topics)
        ids = ids_of.get(names)
        if ids is None:
            found = [info for info in map(topics.find, sorted(names)) if info is not None]
            partitions |= {info.topic_id: info.partition_count for info in found}
            ids = ids_of[names] = tuple(info.topic_id for info in found)
        specs.append((one.member_id, one.instance_id, ids, one.target))
    assigned = assign(assignor, specs, partitions, homogeneous=homogeneous)
    return {spec[0]: target for spec, target in zip(specs, assigned, strict=True)}
