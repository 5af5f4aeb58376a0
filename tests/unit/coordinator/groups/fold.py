"""The part of a shard's state that the log keeps, to compare a live shard with one loaded from its log."""

from __future__ import annotations

from typing import Any

from klamm.coordinator.groups.states import GroupState

from .harness import Room


def snapshot(room: Room) -> dict[str, Any]:
    """The offsets of all groups, and groups with settled members, as plain values."""
    groups = {}
    for group_id, group in room.shard.groups.items():
        offsets = {
            (topic, partition): tuple(commit)[:6]
            for topic, partitions in room.shard.offsets_of(group_id).items()
            for partition, commit in partitions.items()
        }
        settled = None
        if group.state in (GroupState.STABLE, GroupState.EMPTY):
            name = group.protocol_name or ""
            settled = (
                group.state,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                group.leader_id,
                dict(group.static_members),
                group.topics if group.members else None,
                {
                    member.member_id: (
                        member.client_id,
                        member.client_host,
                        member.session_timeout_ms,
                        member.rebalance_timeout_ms,
                        member.metadata(name),
                        member.assignment,
                    )
                    for member in group.members.values()
                },
            )
        groups[group_id] = (settled, offsets | room.shard.pending_offsets(group_id))
    return groups


def assert_same(live: Room, folded: Room) -> None:
    """A shard loaded from the live one's log has the same state, unless the live one is between two records."""
    ours, theirs = snapshot(live), snapshot(folded)
    assert ours.keys() == theirs.keys()
    for group_id, (settled, offsets) in ours.items():
        assert offsets == theirs[group_id][1], group_id
        is_over_full = len(live.shard.groups[group_id].members) > live.config.group_max_size  # rebalances after loading
        if settled is not None and not is_over_full:
            assert settled == theirs[group_id][0], group_id
