"""The response of each API in each state of a group, to a member with valid ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from klamm.coordinator.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    DeletePartition,
    DeleteTopic,
    OffsetDeleteRequest,
    SyncGroupRequest,
)

from .harness import GROUP, STICKY, Room

NONE = ErrorCode.NONE
UMI = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
WAITS = "waits"
STATES = ["absent", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"]


@dataclass
class Scene:
    """A group in a state, and a member of its last generation."""

    room: Room
    member_id: str
    generation_id: int


def scene(state: str, protocol_type: str = "consumer") -> Scene:
    room = Room()
    if state == "absent":
        return Scene(room, "nobody", 1)
    joined = room.begin(count=2, protocol_type=protocol_type)
    if state != "CompletingRebalance":
        for answer in joined:
            room.sync_later(answer)
    first, second = joined
    if state == "PreparingRebalance":
        room.join_later(first.member_id, protocol_type=protocol_type)
    elif state == "Empty":
        assert room.commit_offset(7, generation_id=1, member_id=first.member_id) is NONE
        room.leave(first.member_id, second.member_id)
    assert room.group.state is GroupState(state)
    return Scene(room, second.member_id, room.group.generation_id)


def sync(it: Scene) -> ErrorCode | str:
    ticket = it.room.ticket()
    request = SyncGroupRequest(GROUP, it.generation_id, it.member_id)
    it.room.take(it.room.shard.on_sync(it.room.now_ms, ticket, request))
    return ErrorCode(it.room.answers[ticket].error_code) if ticket in it.room.answers else WAITS


def heartbeat(it: Scene) -> ErrorCode:
    return it.room.heartbeat(it.member_id, it.generation_id)


def leave(it: Scene) -> ErrorCode:
    return ErrorCode(it.room.leave(it.member_id).members[0].error_code)


def commit(it: Scene) -> ErrorCode:
    return it.room.commit_offset(generation_id=it.generation_id, member_id=it.member_id)


def commit_v8(it: Scene) -> ErrorCode:
    return it.room.commit_offset(generation_id=it.generation_id, member_id=it.member_id, version=8)


def anonymous_commit(it: Scene) -> ErrorCode:
    return it.room.commit_offset()


def fetch(it: Scene) -> int:
    return it.room.fetch({"topic": (0,)})["topic", 0]


def delete_offset(it: Scene) -> ErrorCode:
    ticket = it.room.ticket()
    request = OffsetDeleteRequest(GROUP, (DeleteTopic("topic", (DeletePartition(0),)),))
    it.room.take(it.room.shard.on_offset_delete(it.room.now_ms, ticket, request))
    answer = it.room.answers[ticket]
    return ErrorCode(answer.error_code or answer.topics[0].partitions[0].error_code)


def delete_group(it: Scene) -> ErrorCode:
    ticket = it.room.ticket()
    it.room.take(it.room.shard.on_delete_groups(it.room.now_ms, ticket, (GROUP,)))
    return ErrorCode(it.room.answers[ticket][0].error_code)


def describe(it: Scene) -> tuple[str, int, bool]:
    group = it.room.shard.describe(6, GROUP)
    assert bool(group.protocol_data) == any(member.member_metadata for member in group.members)
    return group.group_state, len(group.members), bool(group.protocol_data)


NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP

TABLE: list[tuple[Callable[[Scene], object], list[object]]] = [
    (sync, [UMI, UMI, REBALANCE, WAITS, NONE]),
    (heartbeat, [UMI, UMI, REBALANCE, NONE, NONE]),
    (leave, [UMI, UMI, NONE, NONE, NONE]),
    (commit, [NOT_FOUND, UMI, NONE, REBALANCE, NONE]),
    (commit_v8, [ILLEGAL, UMI, NONE, REBALANCE, NONE]),
    (anonymous_commit, [NONE, NONE, UMI, UMI, UMI]),
    (fetch, [-1, 7, -1, -1, -1]),
    (delete_offset, [NOT_FOUND, NONE, SUBSCRIBED, SUBSCRIBED, SUBSCRIBED]),
    (delete_group, [NOT_FOUND, NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY]),
    (
        describe,
        [
            ("Dead", 0, False),
            ("Empty", 0, False),
            ("PreparingRebalance", 2, False),
            ("CompletingRebalance", 2, False),
            ("Stable", 2, True),
        ],
    ),
]


@pytest.mark.parametrize(
    ("ask", "state", "expected"),
    [(ask, state, expected) for ask, row in TABLE for state, expected in zip(STATES, row, strict=True)],
)
def test_the_table(ask: Callable[[Scene], object], state: str, expected: object) -> None:
    assert ask(scene(state)) == expected


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_offsets_of_a_live_group_of_another_type_are_kept(state: str) -> None:
    assert delete_offset(scene(state, protocol_type="connect")) is NON_EMPTY


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
class TestWrongIds:
    """Checked before the state, in this order: unknown or other instance id, unknown member, other generation."""

    ASKS = (sync, heartbeat, commit)

    def test_unknown_member(self, state: str) -> None:
        for ask in self.ASKS:
            it = scene(state)
            it.member_id, it.generation_id = "stranger", 99
            assert ask(it) is UMI

    def test_another_generation(self, state: str) -> None:
        for ask in self.ASKS:
            it = scene(state)
            it.generation_id = 99
            assert ask(it) is ILLEGAL


def test_a_pending_member_may_leave_an_empty_group() -> None:
    room = Room()
    member_id = room.join().member_id
    assert room.leave(member_id).members[0].error_code is NONE
    assert not room.group.pending_joins


def test_leaving_may_end_the_join_phase() -> None:
    it = scene("PreparingRebalance")
    assert leave(it) is NONE
    assert it.room.group.state is GroupState.COMPLETING_REBALANCE


def test_heartbeat_while_preparing_renews_the_session() -> None:
    it = scene("PreparingRebalance")
    for _ in range(3):
        it.room.pass_time(9_000)
        assert heartbeat(it) is REBALANCE
    assert it.member_id in it.room.group.members


@pytest.mark.parametrize("state", ["PreparingRebalance", "Stable"])
def test_a_commit_renews_the_session(state: str) -> None:
    it = scene(state)
    for _ in range(3):
        it.room.pass_time(9_000)
        assert commit(it) is NONE
    assert it.member_id in it.room.group.members


def test_below_version_6_an_absent_group_is_dead_without_error() -> None:
    room = Room()
    described = room.shard.describe(5, "absent")
    assert (described.group_state, described.error_code) == ("Dead", NONE)
    assert room.shard.describe(6, "absent").error_code is NOT_FOUND


def test_a_sync_of_another_protocol_is_refused() -> None:
    """KIP-559."""
    room = Room()
    (joined,) = room.begin()
    wrong: list[dict[str, Any]] = [{"protocol_type": "connect"}, {"protocol_name": STICKY.name}]
    for fields in wrong:
        ticket = room.sync_later(joined, **fields)
        assert room.answers[ticket].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ticket = room.sync_later(joined, protocol_type="consumer", protocol_name="range")
    assert room.answers[ticket].error_code is NONE
