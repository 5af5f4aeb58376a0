"""What of a shard's state the log keeps, to hold a live shard against one made from its log (goals R8)."""

from __future__ import annotations

from typing import Any

from klamm.coordinator.groups.states import GroupState

from .harness import Room


def snapshot(room: Room) -> dict[str, Any]:
    """Offsets of all groups, and the groups whose members are settled, as plain values."""
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
    """The shard made from the live one's log is like it, where the live one is not between two records."""
    ours, theirs = snapshot(live), snapshot(folded)
    assert ours.keys() == theirs.keys()
    for group_id, (settled, offsets) in ours.items():
        assert offsets == theirs[group_id][1], group_id
        is_over_full = len(live.shard.groups[group_id].members) > live.config.group_max_size  # rebalances when loaded
        if settled is not None and not is_over_full:
            assert settled == theirs[group_id][0], group_id
