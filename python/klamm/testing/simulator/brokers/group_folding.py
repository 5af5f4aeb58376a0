"""The state of a live group shard is what its log says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.groups.records import OffsetAndMetadata
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.groups.streams.task_owners import TaskOwners
from klamm.node.groups import GROUPS_TOPIC
from klamm.testing.simulator.brokers.folding import folded_shards
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm.coordinator.groups.classic_group import ClassicGroup
    from klamm.coordinator.groups.modern.registry import AnyModernGroup
    from klamm.testing.simulator.brokers.broker import Broker

SOFT: Final = {"configured", "endpoint_epoch", "hash_checked_epoch", "shutdown_member", "states_written_ms"}
"""What a group knows besides its records."""


def check_group_state(broker: Broker) -> None:
    """Compare the group shards of a broker that have no append in flight. Raises InvariantViolatedError."""
    coordinators = broker.coordinators
    if coordinators is None:
        return
    groups = coordinators.groups
    for hosted, folded in folded_shards(broker, groups.runtime, GROUPS_TOPIC, lambda: GroupShard(groups.config, str)):
        kept, expected = _state(hosted.shard, hosted.shard), _state(folded, hosted.shard)
        if kept != expected:
            where = f"partition {hosted.partition} of broker {broker.id}"
            raise InvariantViolatedError(f"{where} has {_only(kept, expected)}, and its log {_only(expected, kept)}")


def _state(shard: GroupShard, live: GroupShard) -> dict[str, Any]:
    """Every group by its id, as far as the log has what the live shard knows."""
    modern = {group_id: _fields(group) for group_id, group in shard.modern_groups.items()}
    classic = {group_id: _classic(group, live.groups.get(group_id)) for group_id, group in shard.groups.items()}
    offsets = {
        group_id: {
            (topic, partition): _value(commit)
            for topic, partitions in shard.offsets_of(group_id).items()
            for partition, commit in partitions.items()
        }
        for group_id in modern.keys() | classic.keys()
    }
    pending = {group_id: shard.pending_offsets(group_id) for group_id in offsets}
    return {
        group_id: (modern.get(group_id), classic.get(group_id), offsets[group_id], pending[group_id])
        for group_id in sorted(offsets)
    }


def _fields(group: AnyModernGroup) -> dict[str, Any]:
    found = {name: value for name, value in vars(group).items() if name not in SOFT}
    owners = found.get("owners")
    return found | {"owners": vars(owners)} if isinstance(owners, TaskOwners) else found


def _classic(group: ClassicGroup, live: ClassicGroup | None) -> Any:
    """A generation is in the log once the group is stable."""
    if live is not None and live.state is GroupState.STABLE:
        members = {
            member.member_id: (member.group_instance_id, member.metadata(group.protocol_name or ""), member.assignment)
            for member in group.members.values()
        }
        return group.state, group.generation_id, group.protocol_name, group.leader_id, members
    is_unused = live is not None and live.is_empty and not (live.generation_id or live.pending_joins)
    return group.is_simple if is_unused else None


def _value(commit: OffsetAndMetadata) -> OffsetAndMetadata:
    return commit._replace(record_offset=-1)  # it only orders


def _only(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {group_id: state for group_id, state in one.items() if other.get(group_id) != state}
