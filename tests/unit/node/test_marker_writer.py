"""WriteTxnMarkers on a broker: partitions of the log, of groups, and unknown ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.waiting import until

from klamm.node.coordinators.appends import Appends
from klamm.node.coordinators.marker_writer import EngineMarker, MarkerWriter
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import Marker, MarkerErrors

NONE = ErrorCode.NONE
TOPIC_ID = b"t" * 16
NOW_MS = 1_000_000
OFFSETS = ("__consumer_offsets", 3)


class Room:
    """Replaces engine, image and groups. Appends are acknowledged in the loop's next turn, unless `holds`."""

    def __init__(self, timeout_ms: int = 20_000) -> None:
        self.appends = Appends()
        self.appended: list[EngineMarker] = []
        self.codes: dict[int, ErrorCode] = {}
        self.holds = self.raises = False
        self.unopened: dict[int, Exception | None] = {}
        """Partitions that must be recovered, and the failure of that."""
        self.of_groups: list[tuple[int, int, int, bool, int, int]] = []
        self.code_of_group: ErrorCode | Exception = NONE
        this: Any = self
        self.writer = MarkerWriter(
            this, lambda: this, self.appends, lambda: this, timeout_ms=timeout_ms, now_ms=lambda: NOW_MS
        )

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_ID if name == "t" else None

    def leader(self, topic: str, index: int) -> int | None:
        return 1 if topic == "t" and index < 4 else None

    def must_recover(self, topic_id: bytes, partition: int) -> bool:
        return partition in self.unopened

    def open_partition(self, topic_id: bytes, partition: int) -> None:
        error = self.unopened.pop(partition)
        if error is not None:
            raise error

    def append_markers(self, markers: Sequence[EngineMarker], now_ms: int) -> None:
        assert now_ms == NOW_MS
        if self.raises:
            raise RuntimeError("the engine has a bug")
        self.appended += markers
        for _, partition, token, *_ in markers:
            if not self.holds:
                code = self.codes.get(partition, NONE)
                asyncio.get_running_loop().call_soon(self.appends.on_acked, token, int(code))

    def write_marker(
        self,
        partition: int,
        producer_id: int,
        epoch: int,
        answer: Callable[[ErrorCode], None],
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        self.of_groups.append((partition, producer_id, epoch, commits, coordinator_epoch, transaction_version))
        if isinstance(self.code_of_group, Exception):
            raise self.code_of_group
        answer(self.code_of_group)

    async def write(self, *markers: Marker) -> MarkerErrors:
        answered: asyncio.Future[MarkerErrors] = asyncio.get_running_loop().create_future()
        self.writer.write(markers, answered.set_result)
        return await answered


@pytest.fixture
async def room() -> Room:
    return Room()


async def test_each_partition_has_its_error(room: Room) -> None:
    room.codes[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    one = Marker(7, 3, True, 5, 2, (("t", 0), ("t", 1), ("t", 9), ("gone", 0)))
    other = Marker(8, 0, False, 6, 0, (("t", 0),))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await room.write(one, other) == {
        7: {("t", 0): NONE, ("t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER, ("t", 9): unknown, ("gone", 0): unknown},
        8: {("t", 0): NONE},
    }
    assert [(at[0], at[1], *at[4:]) for at in room.appended] == [
        (TOPIC_ID, 0, 7, 3, True, 5, 2),
        (TOPIC_ID, 1, 7, 3, True, 5, 2),
        (TOPIC_ID, 0, 8, 0, False, 6, 0),
    ]
    assert await room.write() == {}


async def test_the_group_coordinator_writes_markers_of_groups(room: Room) -> None:
    room.code_of_group = ErrorCode.NOT_LEADER_OR_FOLLOWER
    marker = Marker(7, 3, True, 5, 2, (OFFSETS, ("t", 0)))
    assert await room.write(marker) == {7: {OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER, ("t", 0): NONE}}
    assert room.of_groups == [(3, 7, 3, True, 5, 2)]


async def test_markers_not_written_in_time_have_an_unknown_outcome() -> None:
    room = Room(timeout_ms=1)
    room.holds = True
    marker = Marker(7, 3, True, 5, 2, (("t", 0),))
    assert await room.write(marker) == {7: {("t", 0): ErrorCode.REQUEST_TIMED_OUT}}
    room.appends.on_acked(room.appended[0][2], 0)  # too late


async def test_after_an_exception_markers_are_sent_again(room: Room) -> None:
    room.raises = True
    room.code_of_group = RuntimeError("so has the coordinator")
    marker = Marker(7, 3, True, 5, 2, (("t", 0), OFFSETS))
    again = ErrorCode.REQUEST_TIMED_OUT
    assert await room.write(marker) == {7: {("t", 0): again, OFFSETS: again}}


async def test_a_log_that_must_be_recovered_holds_up_its_own_marker_alone(room: Room) -> None:
    failed = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    room.unopened = {1: None, 2: failed, 3: RuntimeError("the engine has a bug")}
    marker = Marker(7, 3, True, 5, 2, tuple(("t", partition) for partition in range(4)))
    answered: list[MarkerErrors] = []
    room.writer.write([marker], answered.append)
    assert [partition for _, partition, *_ in room.appended] == [0]
    await until(lambda: bool(answered))
    unknown, again = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT
    assert answered == [{7: {("t", 0): NONE, ("t", 1): NONE, ("t", 2): unknown, ("t", 3): again}}]


async def test_an_answer_that_fails_affects_no_other_event(room: Room) -> None:
    def fail(errors: MarkerErrors) -> None:
        raise RuntimeError("the coordinator has a bug")

    room.writer.write([Marker(7, 3, True, 5, 2, (("gone", 0),))], fail)
    room.writer.write([Marker(7, 3, True, 5, 2, (("t", 0),))], fail)
    assert await room.write(Marker(7, 3, True, 5, 2, (("t", 1),))) == {7: {("t", 1): NONE}}
