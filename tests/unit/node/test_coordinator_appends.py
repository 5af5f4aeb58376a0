"""Appends of a node's coordinators through its engine: transactional batches of a producer, and markers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lone_engine import TOPIC, lone_engine
from tests.support.waiting import wait_until

from klamm._engine.node import AckedEvent, Engine
from klamm.protocol.errors import ErrorCode

PRODUCER = 7


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with lone_engine(tmp_path) as engine:
        yield engine


class Acks:
    """The results of appends by token."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._found = engine, dict[int, int]()

    def of(self, token: int) -> ErrorCode:
        def is_there() -> bool:
            events = self._engine.drain(100)
            self._found |= {event.token: event.error_code for event in events if isinstance(event, AckedEvent)}
            return token in self._found

        wait_until(is_there, "the append is answered")
        return ErrorCode(self._found[token])


def marker(
    token: int, *, epoch: int, commits: bool = True, coordinator_epoch: int = 0, version: int = 2
) -> tuple[bytes, int, int, None, int, int, bool, int, int]:
    return (TOPIC, 0, token, None, PRODUCER, epoch, commits, coordinator_epoch, version)


def test_a_batch_in_a_transaction_and_its_marker(engine: Engine) -> None:
    acks = Acks(engine)
    engine.append(TOPIC, [(0, 1, None, [(b"k", b"v")], (PRODUCER, 3)), (0, 2, None, [(b"k", b"w")])], 1000)
    engine.append(TOPIC, [(0, 3, None, [(b"k", b"x"), (b"l", None)], (PRODUCER, 3))], 1000, 4)
    assert {acks.of(token) for token in (1, 2, 3)} == {ErrorCode.NONE}
    assert engine.producers(TOPIC, 0) == [(PRODUCER, 3, 1, 1000, -1, 0)], "the transaction began at offset 0"
    engine.append_markers([marker(4, epoch=4, coordinator_epoch=9)], 2000)
    assert acks.of(4) is ErrorCode.NONE
    assert engine.producers(TOPIC, 0) == [(PRODUCER, 4, -1, 2000, 9, -1)]
    following, rows = engine.read_records(TOPIC, 0, 0, 1 << 20)
    assert following == 5
    assert rows == [
        (0, b"k", b"v", PRODUCER, False),
        (1, b"k", b"w", -1, False),
        (2, b"k", b"x", PRODUCER, False),
        (3, b"l", None, PRODUCER, False),
        (4, b"\0\1", b"\0\0\0\0\0\x09", PRODUCER, True),
    ]


def test_an_older_epoch_is_refused(engine: Engine) -> None:
    acks = Acks(engine)
    engine.append(
        TOPIC, [(0, 1, None, [(b"k", b"v")], (PRODUCER, 3)), (0, 2, None, [(b"k", b"v")], (PRODUCER, 2))], 1000
    )
    assert (acks.of(1), acks.of(2)) == (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
    engine.append(TOPIC, [(0, 3, None, [(b"k", b"v")], (PRODUCER, 3))], 1000)
    assert acks.of(3) is ErrorCode.NONE, "its sequence is 0 again"


def test_markers_of_one_partition_are_appended_in_order(engine: Engine) -> None:
    acks = Acks(engine)
    engine.append_markers(
        [
            marker(1, epoch=3, commits=False, coordinator_epoch=5),
            marker(2, epoch=2, coordinator_epoch=5),
            marker(3, epoch=3, coordinator_epoch=4),
            marker(4, epoch=4, coordinator_epoch=6),
        ],
        1000,
    )
    assert [acks.of(token) for token in (1, 2, 3, 4)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.NONE,
    ]
    _, rows = engine.read_records(TOPIC, 0, 0, 1 << 20)
    assert [row[1] for row in rows] == [b"\0\0", b"\0\1"], "an abort and a commit"


def test_appends_to_other_partitions_fail_at_once(engine: Engine) -> None:
    acks = Acks(engine)
    elsewhere = (b"u" * 16, 0, 1, None, PRODUCER, 0, True, 0, 0)
    no_partition = (TOPIC, 7, 2, None, PRODUCER, 0, True, 0, 0)
    engine.append_markers([elsewhere, no_partition], 1000)
    assert (acks.of(1), acks.of(2)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) * 2


def test_a_marker_of_a_group_shard_is_written_below_min_isr(tmp_path: Path) -> None:
    with lone_engine(tmp_path, {"min.insync.replicas": "2"}) as engine:
        acks = Acks(engine)
        engine.append_markers([marker(1, epoch=3)], 1000)
        assert acks.of(1) is ErrorCode.NOT_ENOUGH_REPLICAS
        engine.append_markers([marker(2, epoch=3)], 1000, needs_min_isr=False)
        following, _ = engine.read_records(TOPIC, 0, 0, 1 << 20)
        assert following == 1, "it is in the log, and is acknowledged once it is committed"
        assert not [event for event in engine.drain(100) if isinstance(event, AckedEvent)]


def test_a_load_has_the_last_record_of_each_key_and_transactional_records(engine: Engine) -> None:
    acks = Acks(engine)
    engine.append(TOPIC, [(0, 1, None, [(b"k", b"1"), (b"l", b"2"), (b"k", b"3")])], 1000)
    engine.append(TOPIC, [(0, 2, None, [(b"k", b"4"), (b"k", b"5")], (PRODUCER, 3))], 1000)
    engine.append_markers([marker(3, epoch=4)], 1000)
    engine.append(TOPIC, [(0, 4, None, [(b"l", None), (b"m", b"6")])], 1000)
    assert {acks.of(token) for token in (1, 2, 3, 4)} == {ErrorCode.NONE}
    _, rows = engine.read_records(TOPIC, 0, 0, 1 << 20)

    def loaded(*, latest_only: bool) -> list[tuple[int, bytes | None, bytes | None, int, bool]]:
        load, found = engine.load(TOPIC, 0, 1, latest_only=latest_only), []
        while (part := load.read()) is not None:
            while taken := part.take(2):
                assert len(taken) <= 2
                found += taken
        return found

    assert loaded(latest_only=False) == rows
    assert loaded(latest_only=True) == [row for row in rows if row[0] not in (0, 1)], "k at 0 and l at 1 were replaced"


def test_later_parts_of_a_load_have_every_record_of_groups(engine: Engine) -> None:
    """Parts end after 32 MiB: the second part must contain the tombstone of a member in the first."""
    acks = Acks(engine)
    large = [[(b"\0\2" + bytes([number]), bytes(900_000))] for number in range(40)]
    small: list[list[tuple[bytes, bytes | None]]] = [
        [(b"\0\5m", None), (b"\0\1o", b"1"), (b"\0\0o", b"2")],
        [(b"\0\5m", b"3"), (b"\0\1o", b"4"), (b"\0\0o", None)],
    ]
    for token, records in enumerate([*large, *small]):
        engine.append(TOPIC, [(0, token, None, records)], 1000)
        assert acks.of(token) is ErrorCode.NONE
    load, parts = engine.load(TOPIC, 0, 1 << 20, latest_only=True), []
    while (part := load.read()) is not None:
        parts.append(part.take(100))
    assert len(parts) == 2
    later = [row for row in parts[1] if row[1] is not None and row[1][1:2] != b"\2"]
    assert [(key, value) for _, key, value, _, _ in later] == [
        (b"\0\5m", None),
        (b"\0\5m", b"3"),
        (b"\0\1o", b"4"),
        (b"\0\0o", None),
    ]


def test_after_a_refused_append_the_rest_of_its_series_is_not_attempted(engine: Engine) -> None:
    """The shard of the series has built on it, and is rolled back."""
    acks = Acks(engine)
    records = [(b"k", b"v")]
    engine.append(TOPIC, [(0, 1, (0, 1), records, (PRODUCER, 3)), (0, 2, (0, 1), records)], 1000)
    engine.append(TOPIC, [(0, 3, (0, 1), records, (PRODUCER, 2)), (0, 4, (0, 1), records)], 1000)
    engine.append_markers([(TOPIC, 0, 5, (0, 1), PRODUCER, 4, True, 0, 2), marker(6, epoch=4)], 1000)
    engine.append(TOPIC, [(0, 7, (0, 1), records), (0, 8, (0, 2), records), (0, 9, None, records)], 1000)
    codes = [acks.of(token) for token in range(1, 10)]
    assert [token for token, code in enumerate(codes, 1) if code is ErrorCode.NONE] == [1, 2, 6, 8, 9]
    assert codes[2] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert {codes[3], codes[4], codes[6]} == {ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_a_batch_that_cannot_be_built_ends_its_series(engine: Engine) -> None:
    acks = Acks(engine)
    large = [(b"k", bytes(1 << 20))] * 5
    engine.append(TOPIC, [(0, 1, (0, 1), large), (0, 2, (0, 1), [(b"k", b"v")])], 1000)
    assert acks.of(1) is ErrorCode.MESSAGE_TOO_LARGE
    assert acks.of(2) is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_a_series_is_appended_in_its_leader_epoch(engine: Engine) -> None:
    """A shard of an earlier epoch does not know what other leaders have appended since."""
    acks = Acks(engine)
    engine.append(TOPIC, [(0, token, (epoch, token), [(b"k", b"v")]) for token, epoch in ((1, -1), (2, 1), (3, 0))], 1)
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [acks.of(token) for token in (1, 2, 3)] == [not_leader, not_leader, ErrorCode.NONE]
