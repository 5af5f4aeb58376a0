from __future__ import annotations

from tests.unit.coordinator.groups.harness import CONFIG, GROUP, Room

from klamm.coordinator.groups.counts import GroupCounts, group_gauges
from klamm.coordinator.runtime.counts import partition_gauges
from klamm.coordinator.runtime.hosted_shard import LoadState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    DeletePartition,
    DeleteTopic,
    ListedGroup,
    ListGroupsRequest,
    OffsetDeleteRequest,
)


def test_each_counter_counts_its_event() -> None:
    room = Room()
    joined = room.make_stable(count=2)
    assert (room.counts.completed_rebalances, room.counts.offset_commits) == (1, 0)
    leader = joined[0]
    generation = {"member_id": leader.member_id, "generation_id": leader.generation_id}
    room.commit_later({("topic", 0): 1, ("topic", 1): 2, ("other", 0): 3}, **generation)
    assert room.counts.offset_commits == 3
    assert room.commit_offset(member_id="nobody", generation_id=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.counts.offset_commits == 3
    room.leave(*(one.member_id for one in joined))
    request = OffsetDeleteRequest(GROUP, (DeleteTopic("topic", (DeletePartition(0), DeletePartition(9))),))
    room.take(room.shard.on_offset_delete(room.now_ms, room.ticket(), request))
    assert (room.counts.offset_deletions, room.counts.offset_expirations) == (1, 0)
    room.pass_time(CONFIG.offsets_retention_ms + CONFIG.offsets_retention_check_interval_ms)
    assert (room.counts.offset_deletions, room.counts.offset_expirations) == (1, 2)


def test_every_counter_has_a_unique_name() -> None:
    assert len(GroupCounts().named()) == len(GroupCounts.__slots__)


def test_groups_are_counted_by_kind_and_state() -> None:
    room = Room()
    room.make_stable(count=2)
    room.commit_offset(group_id="empty", topic="topic", partition=3)
    assert room.shard.offset_count == 1
    others = [ListedGroup("s", "", "Stable", "share"), ListedGroup("t", "", "NotReady", "streams")]
    found = group_gauges([*room.shard.list_groups(ListGroupsRequest()), *others], room.shard.offset_count)
    group, manager = (
        "kafka.server:type=group-coordinator-metrics,name=",
        "kafka.coordinator.group:type=GroupMetadataManager,name=",
    )
    assert {name: count for name, count in found.items() if count} == {
        f"{group}group-count,protocol=classic": 2,
        f"{group}group-count,protocol=share": 1,
        f"{group}group-count,protocol=streams": 1,
        f"{group}share-group-count,state=Stable": 1,
        f"{group}streams-group-count,state=NotReady": 1,
        f"{manager}NumGroups": 2,
        f"{manager}NumGroupsEmpty": 1,
        f"{manager}NumGroupsStable": 1,
        f"{manager}NumOffsets": 1,
    }
    assert found[f"{group}consumer-group-count,state=Assigning"] == 0


def test_partitions_are_counted_by_state() -> None:
    found = partition_gauges("group-coordinator-metrics", [LoadState.ACTIVE, LoadState.LOADING, LoadState.ACTIVE])
    name = "kafka.server:type=group-coordinator-metrics,name=num-partitions,state"
    assert found == {f"{name}=loading": 1, f"{name}=active": 2, f"{name}=failed": 0}
