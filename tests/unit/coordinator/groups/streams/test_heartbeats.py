"""StreamsGroupHeartbeat (KIP-1071)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.coordinator.groups.streams.harness import (
    AT_ONCE,
    GROUP,
    STATEFUL,
    STATELESS,
    Metadata,
    StreamsRoom,
    active,
    ids,
    standby,
    statuses,
)

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.streams.member import MemberState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.streams_messages import (
    ASSIGNMENT_DELAYED,
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    Endpoint,
    EndpointPartitions,
    InternalTopic,
    KeyValue,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)

DEFAULTS = GroupConfig()
STORE = "store-changelog"


def stateful_room(config: GroupConfig = AT_ONCE, **group_configs: str) -> StreamsRoom:
    keys = {f"streams.{name.replace('_', '.')}": value for name, value in group_configs.items()}
    return StreamsRoom(config, metadata=Metadata(input=4, store_changelog=4), group_configs=keys)


class TestTopics:
    """Existing topics determine the tasks."""

    def test_a_missing_source_topic(self) -> None:
        room = StreamsRoom(metadata=Metadata())
        joined = room.beat("m", 0)
        assert (joined.error_code, active(joined)) == (ErrorCode.NONE, [])
        assert statuses(joined) == [MISSING_SOURCE_TOPICS]
        assert room.describe().group_state == "NotReady"
        room.create(input=2)
        assert active(room.beat("m", joined.member_epoch)) == [0, 1]
        assert room.describe().group_state == "Stable"

    def test_a_missing_changelog(self) -> None:
        room = StreamsRoom()
        result = room.result("m", 0, topology=STATEFUL)
        assert statuses(result.response) == [MISSING_INTERNAL_TOPICS]
        assert result.topics == (InternalTopic(STORE, 4),)
        assert result.heartbeat_interval_ms == 5_000
        room.create(store_changelog=4)
        again = room.result("m", result.response.member_epoch)
        assert (statuses(again.response), again.topics) == ([], ())
        assert active(again.response) == [0, 1, 2, 3]

    def test_an_internal_topic_with_a_wrong_count(self) -> None:
        room = StreamsRoom(metadata=Metadata(input=4, store_changelog=3))
        result = room.result("m", 0, topology=STATEFUL)
        assert statuses(result.response) == [INCORRECTLY_PARTITIONED_TOPICS]
        assert result.topics == ()

    def test_a_deleted_source_topic_removes_its_tasks(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        room.delete("input")
        revoking = room.beat("m", epoch)
        assert statuses(revoking) == [MISSING_SOURCE_TOPICS]
        assert active(revoking) == []
        assert room.describe().group_state == "NotReady"

    def test_more_partitions_are_more_tasks(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        room.create(input=6)
        assert active(room.beat("m", epoch)) == [0, 1, 2, 3, 4, 5]

    def test_other_topics_change_nothing(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        written = len(room.log)
        room.create(other=6)
        assert active(room.beat("m", epoch)) is None
        assert len(room.log) == written

    def test_an_invalid_topology(self) -> None:
        loop = Subtopology("0", ("input",), repartition_source_topics=(InternalTopic("never-written"),))
        room = StreamsRoom()
        assert room.error("m", 0, topology=Topology(0, (loop,))) is ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert not room.log
        assert not room.shard.modern_groups


class TestRequests:
    """Checks that need no group."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"instance_id": "i"},
            {"warmup_tasks": ids(1)},
            {"task_offsets": (TaskOffset("0", 0, 1),)},
            {"task_end_offsets": ()},
            {"topology": Topology(0, (Subtopology("0", (), ("in.*",)),))},
            {"topology": None},
            {"rebalance_timeout_ms": -1},
            {"active_tasks": None},
            {"active_tasks": ids(1)},
            {"standby_tasks": ids(1)},
            {"rack_id": " "},
        ],
    )
    def test_a_wrong_join(self, fields: dict[str, Any]) -> None:
        room = StreamsRoom()
        assert room.error("m", 0, **fields) is ErrorCode.INVALID_REQUEST
        assert not room.log

    @pytest.mark.parametrize(
        "fields",
        [
            {"instance_id": "i"},
            {"topology": STATELESS},
            {"warmup_tasks": ids(1), "active_tasks": (), "standby_tasks": ()},
            {"active_tasks": ()},
        ],
    )
    def test_a_wrong_heartbeat(self, fields: dict[str, Any]) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        assert room.error("m", epoch, **fields) is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(("member_id", "epoch", "group_id"), [("", 0, GROUP), ("m", 0, " "), ("m", -3, GROUP)])
    def test_ids_and_epochs(self, member_id: str, epoch: int, group_id: str) -> None:
        assert StreamsRoom().error(member_id, epoch, group_id=group_id) is ErrorCode.INVALID_REQUEST

    def test_a_static_member_cannot_leave_for_a_while(self) -> None:
        assert StreamsRoom().error("m", -2) is ErrorCode.INVALID_REQUEST

    def test_a_changelog_has_no_count_of_its_own(self) -> None:
        one = Subtopology("0", ("input",), state_changelog_topics=(InternalTopic("c", 3),))
        assert StreamsRoom().error("m", 0, topology=Topology(0, (one,))) is ErrorCode.STREAMS_INVALID_TOPOLOGY

    @pytest.mark.parametrize("topology", [replace(STATELESS, epoch=-1), Topology(0, STATELESS.subtopologies * 2)])
    def test_impossible_topologies(self, topology: Topology) -> None:
        room = StreamsRoom()
        assert room.error("m", 0, topology=topology) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert not room.log

    @pytest.mark.parametrize("tasks", [(TaskIds("9", (0,)),), (TaskIds("0", (4,)),), (TaskIds("0", (-1,)),)])
    def test_tasks_that_the_topology_does_not_have(self, tasks: tuple[TaskIds, ...]) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        fields: dict[str, Any] = {"active_tasks": tasks, "standby_tasks": (), "warmup_tasks": ()}
        assert room.error("m", epoch, **fields) is ErrorCode.INVALID_REQUEST


class TestTopologies:
    """The first topology stays until the group is deleted."""

    def test_another_topology(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        assert room.error("n", 0, topology=STATEFUL) is ErrorCode.INVALID_REQUEST
        assert room.error("n", 0, topology=replace(STATELESS, epoch=1)) is ErrorCode.INVALID_REQUEST

    def test_an_older_epoch(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0, topology=replace(STATELESS, epoch=3))
        old = room.beat("n", 0, topology=STATEFUL)
        assert old.error_code is ErrorCode.NONE
        assert statuses(old) == [STALE_TOPOLOGY]
        assert statuses(room.beat("n", old.member_epoch)) == [STALE_TOPOLOGY]

    def test_a_group_whose_topology_was_lost(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        room.log = [record for record in room.log if record[0][:2] != b"\0\x17"]
        again = room.reloaded()
        assert again.error("m", epoch) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert active(again.beat("m", 0)) == [0, 1, 2, 3]

    def test_the_topology_stays_without_members(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.beat("m", -1)
        assert room.error("n", 0, topology=STATEFUL) is ErrorCode.INVALID_REQUEST


class TestEpochs:
    """Group epoch, assignment epoch and member epochs."""

    def test_the_first_target_waits_for_more_members(self) -> None:
        room = StreamsRoom(DEFAULTS)
        joined = room.beat("m", 0)
        assert (joined.member_epoch, statuses(joined), active(joined)) == (1, [ASSIGNMENT_DELAYED], [])
        room.pass_time(2_999)
        assert statuses(room.beat("m", 1)) == [ASSIGNMENT_DELAYED]
        room.pass_time(1)
        assert room.streams_group.assignment_epoch == 2
        after = room.beat("m", 1)
        assert (after.member_epoch, statuses(after), active(after)) == (2, [], [0, 1, 2, 3])

    def test_members_of_the_delay_share_the_first_target(self) -> None:
        room = StreamsRoom(DEFAULTS)
        room.beat("m", 0)
        room.beat("n", 0)
        room.pass_time(3_000)
        assert room.streams_group.assignment_epoch == room.streams_group.group_epoch == 3
        assert [active(room.beat(member, 1)) for member in "mn"] == [[0, 2], [1, 3]]

    def test_a_group_that_was_empty_waits_again(self) -> None:
        room = StreamsRoom(DEFAULTS)
        room.beat("m", 0)
        room.pass_time(3_000)
        room.beat("m", -1)
        joined = room.beat("n", 0)
        assert (joined.member_epoch, statuses(joined), active(joined)) == (2, [ASSIGNMENT_DELAYED], [])
        room.pass_time(3_000)
        assert active(room.beat("n", 2)) == [0, 1, 2, 3]

    def test_the_assignment_interval(self) -> None:
        room = StreamsRoom(replace(AT_ONCE, group_streams_assignment_interval_ms=1_000))
        assert active(room.beat("m", 0)) == [0, 1, 2, 3]
        joined = room.beat("n", 0)
        assert (joined.member_epoch, statuses(joined), active(joined)) == (2, [ASSIGNMENT_DELAYED], [])
        assert room.describe().group_state == "Assigning"
        room.pass_time(1_000)
        assert room.beat("n", 2).member_epoch == 3

    def test_the_same_join_again_changes_nothing(self) -> None:
        room = StreamsRoom()
        first = room.beat("m", 0)
        written = len(room.log)
        assert room.beat("m", 0) == first
        assert len(room.log) == written

    @pytest.mark.parametrize(
        "fields",
        [
            {"rack_id": "r"},
            {"rebalance_timeout_ms": 1},
            {"process_id": "p"},
            {"user_endpoint": Endpoint("h", 1)},
            {"client_tags": (KeyValue("k", "v"),)},
        ],
    )
    def test_every_change_of_a_member_raises_the_epoch(self, fields: dict[str, Any]) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        assert room.beat("m", epoch, **fields).member_epoch == epoch + 1
        written = len(room.log)
        room.beat("m", epoch + 1, **fields)
        assert len(room.log) == written

    def test_a_repeated_key_of_client_tags(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        written = len(room.log)
        tags = (KeyValue("k", "v"), KeyValue("k", "w"))
        assert room.beat("m", epoch, client_tags=tags).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(room.log) == written

    def test_another_number_of_standbys(self) -> None:
        room = stateful_room()
        room.beat("m", 0, topology=STATEFUL)
        room.beat("n", 0, topology=STATEFUL)
        for member in "mnmn":
            now = room.streams_group.members[member]
            room.owning(member, now.member_epoch, *now.assigned.active.get("0", ()))
        group_epoch = room.streams_group.group_epoch
        room.group_configs["streams.num.standby.replicas"] = "1"
        for member in "mn":
            now = room.streams_group.members[member]
            room.owning(member, now.member_epoch, *now.assigned.active["0"])
        assert room.streams_group.group_epoch == group_epoch + 1
        m, n = (room.streams_group.members[member].assigned for member in "mn")
        assert m.standby == {"0": frozenset(n.active["0"])}
        assert n.standby == {"0": frozenset(m.active["0"])}

    def test_the_broker_bounds_the_standbys(self) -> None:
        room = stateful_room(num_standby_replicas="9")
        room.beat("m", 0, topology=STATEFUL)
        assert room.streams_group.assignment_configs == {"num.standby.replicas": "2"}

    def test_no_standby_in_the_process_of_the_active_task(self) -> None:
        room = stateful_room(num_standby_replicas="1")
        room.beat("m", 0, topology=STATEFUL, process_id="p")
        joined = room.beat("n", 0, topology=STATEFUL, process_id="p")
        assert (active(joined), standby(joined)) == ([], [])
        targets = room.streams_group.targets.values()
        assert all(not target.standby for target in targets)


class TestMemberEpochs:
    """The epochs that a member may send."""

    def test_an_unknown_group_or_member(self) -> None:
        room = StreamsRoom()
        assert room.error("m", 5) is ErrorCode.GROUP_ID_NOT_FOUND
        assert room.error("m", -1) is ErrorCode.GROUP_ID_NOT_FOUND
        room.beat("m", 0)
        assert room.error("n", 5) is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.error("n", -1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_greater_epoch_is_fenced(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        assert room.error("m", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
        rejoined = room.beat("m", 0)
        assert (rejoined.member_epoch, active(rejoined)) == (epoch, [0, 1, 2, 3])

    def test_the_previous_epoch_needs_the_tasks(self) -> None:
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        room.beat("m", epoch, rack_id="r")
        assert room.error("m", epoch) is ErrorCode.FENCED_MEMBER_EPOCH
        assert room.owning("m", epoch, 9).error_code is ErrorCode.FENCED_MEMBER_EPOCH
        assert room.owning("m", epoch, 0, standby=(1,)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
        assert room.owning("m", epoch, 0, 1).member_epoch == epoch + 1
        assert room.owning("m", epoch - 1, 0).error_code is ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_that_reports_too_few_tasks_gets_them_again(self) -> None:
        """The response that had them was lost."""
        room = StreamsRoom()
        epoch = room.beat("m", 0).member_epoch
        assert room.beat("m", epoch).active_tasks is None
        assert room.owning("m", epoch, 0, 1, 2, 3).active_tasks is None
        assert active(room.owning("m", epoch, 0, 1)) == [0, 1, 2, 3]

    def test_a_full_group(self) -> None:
        room = StreamsRoom(replace(AT_ONCE, group_streams_max_size=1))
        epoch = room.beat("m", 0).member_epoch
        assert room.error("n", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert room.error("m", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert room.error("m", epoch) is ErrorCode.NONE


class TestReconciliation:
    """A member revokes tasks before another gets them."""

    def two(self, room: StreamsRoom) -> None:
        """The second member has joined; the first has not received its response yet."""
        assert active(room.beat("m", 0)) == [0, 1, 2, 3]
        joined = room.beat("n", 0)
        assert (joined.member_epoch, active(joined)) == (3, [])

    def test_tasks_move(self) -> None:
        room = StreamsRoom()
        self.two(room)
        assert room.streams_group.members["n"].state is MemberState.UNRELEASED_TASKS
        revoking = room.beat("m", 2)
        assert (revoking.member_epoch, active(revoking)) == (2, [0, 1])
        assert room.describe().group_state == "Reconciling"
        assert active(room.beat("n", 3)) is None
        written = len(room.log)
        assert active(room.owning("m", 2, 0, 1, 2, 3)) is None
        assert active(room.beat("m", 2)) is None
        assert active(room.beat("n", 3)) is None
        assert len(room.log) == written
        assert room.owning("m", 2, 0, 1).member_epoch == 3
        assert active(room.beat("n", 3)) == [2, 3]
        assert room.describe().group_state == "Stable"

    def test_the_epoch_rises_when_a_member_revokes_twice(self) -> None:
        """Unlike in consumer groups: leaving UNREVOKED_TASKS for the same state raises the member epoch by 1."""
        room = StreamsRoom(metadata=Metadata(input=6))
        room.beat("m", 0)
        room.beat("n", 0)
        assert active(room.beat("m", 2)) == [0, 1, 2]
        room.beat("o", 0)
        again = room.owning("m", 2, 0, 1, 2)
        assert (again.member_epoch, len(active(again) or ())) == (3, 2)
        assert room.streams_group.members["m"].state is MemberState.UNREVOKED_TASKS
        assert room.owning("m", 3, *(active(again) or ())).member_epoch == 4

    def test_a_member_that_does_not_revoke_is_removed(self) -> None:
        room = StreamsRoom()
        self.two(room)
        room.beat("m", 2)
        for _ in range(5):
            room.pass_time(11_999)
            room.beat("m", 2)
            room.beat("n", 3)
        room.pass_time(5)
        assert room.error("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert active(room.beat("n", 3)) == [0, 1, 2, 3]

    def test_a_silent_member_is_removed(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.pass_time(44_999)
        assert room.error("m", 2) is ErrorCode.NONE
        room.pass_time(45_000)
        assert room.error("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert room.describe().group_state == "Empty"

    def test_a_member_that_leaves_frees_its_tasks(self) -> None:
        room = StreamsRoom()
        self.two(room)
        left = room.beat("m", -1)
        assert (left.member_epoch, left.heartbeat_interval_ms, left.status) == (-1, 0, ())
        assert active(room.beat("n", 3)) == [0, 1, 2, 3]

    def test_a_standby_is_given_up_before_it_becomes_active(self) -> None:
        room = stateful_room(num_standby_replicas="1")
        room.beat("m", 0, topology=STATEFUL)
        room.beat("n", 0, topology=STATEFUL)
        for member in "mnmn":
            now = room.streams_group.members[member].assigned
            tasks = (now.active.get("0", ()), now.standby.get("0", ()))
            room.owning(member, room.streams_group.members[member].member_epoch, *tasks[0], standby=tasks[1])
        n = room.streams_group.members["n"]
        room.beat("m", -1)
        first = room.owning("n", n.member_epoch, *n.assigned.active["0"], standby=n.assigned.standby["0"])
        assert standby(first) == []
        second = room.owning("n", first.member_epoch, *n.assigned.active["0"])
        assert active(second) is None
        assert active(room.beat("n", second.member_epoch)) == [0, 1, 2, 3]


class TestShutdown:
    """A member requests the end of the application."""

    def test_every_member_is_notified_until_the_group_is_empty(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.beat("n", 0)
        assert statuses(room.beat("m", 2, shutdown_application=True)) == [SHUTDOWN_APPLICATION]
        assert statuses(room.beat("n", 3)) == [SHUTDOWN_APPLICATION]
        room.beat("m", -1)
        assert statuses(room.beat("n", 3)) == [SHUTDOWN_APPLICATION]
        room.beat("n", -1)
        assert statuses(room.beat("o", 0)) == []

    def test_with_the_leave(self) -> None:
        room = StreamsRoom()
        room.beat("m", 0)
        room.beat("n", 0)
        assert room.error("m", -1, shutdown_application=True) is ErrorCode.NONE
        assert statuses(room.beat("n", 3)) == [SHUTDOWN_APPLICATION]


class TestEndpoints:
    """Members learn the queryable partitions of the others."""

    def test_endpoints_with_their_partitions(self) -> None:
        room = StreamsRoom()
        joined = room.beat("m", 0, user_endpoint=Endpoint("host", 1))
        # The endpoint epoch of a group that is just being created is not kept.
        assert joined.endpoint_information_epoch == 0
        [known] = joined.partitions_by_user_endpoint or ()
        assert known.active_partitions == (EndpointPartitions("input", (0, 1, 2, 3)),)
        other = room.beat("n", 0)
        assert other.partitions_by_user_endpoint is None
        room.beat("m", 2)
        epoch = room.owning("m", 2, 0, 1).endpoint_information_epoch
        assert epoch == 1
        told = room.beat("n", 3, endpoint_information_epoch=0)
        assert told.endpoint_information_epoch == epoch
        [known] = told.partitions_by_user_endpoint or ()
        assert (known.user_endpoint, known.active_partitions) == (
            Endpoint("host", 1),
            (EndpointPartitions("input", (0, 1)),),
        )
        assert room.beat("n", 3, endpoint_information_epoch=epoch).partitions_by_user_endpoint is None

    def test_a_member_without_topics_has_no_partitions(self) -> None:
        room = StreamsRoom(metadata=Metadata())
        joined = room.beat("m", 0, user_endpoint=Endpoint("host", 1))
        assert joined.error_code is ErrorCode.NONE
        [known] = joined.partitions_by_user_endpoint or ()
        assert known.active_partitions == ()


def test_the_status_is_a_list_also_without_problems() -> None:
    """KAFKA-19945"""
    room = StreamsRoom()
    joined = room.beat("m", 0)
    assert joined.status == ()
    assert room.beat("m", joined.member_epoch).status == ()
