"""The log of an internal topic, as it passes the appends of shards to the engine."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from klamm.coordinator.runtime.log import Batch, Marker, Producer, Series
from klamm.node.coordinators.appends import Appends
from klamm.node.views.coordinator_log import EngineCoordinatorLog
from klamm.protocol.errors import ErrorCode

TOPIC_ID = b"t" * 16
NOW_MS = 1_000
CODEC = 4
RECORDS = [(b"k", b"v")]
PRODUCER = Producer(7, 3)
MARKER = Marker(PRODUCER, True, 5, 2)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Room:
    """Replaces the engine."""

    def __init__(self) -> None:
        self.topic_id: bytes | None = TOPIC_ID
        self.appended: list[Any] = []
        self.raises_at = -1
        self.appends = Appends()
        self.results: list[tuple[int, ErrorCode | None]] = []
        this: Any = self
        self.log = EngineCoordinatorLog(
            this, "__topic", lambda: self.topic_id, self.appends, codec=CODEC, load_bytes=1, is_compacted=True
        )

    def _take(self, row: Any) -> None:
        if len(self.appended) == self.raises_at:
            raise OSError("no thread can be started")
        self.appended.append(row)

    def append(self, topic_id: bytes, batches: list[Any], timestamp_ms: int, codec: int) -> None:
        assert (topic_id, timestamp_ms, codec) == (TOPIC_ID, NOW_MS, CODEC)
        for batch in batches:
            self._take(batch)

    def append_markers(self, markers: list[Any], timestamp_ms: int, *, needs_min_isr: bool) -> None:
        assert (timestamp_ms, needs_min_isr) == (NOW_MS, False), "a transaction ends also below min.insync.replicas"
        for marker in markers:
            self._take(marker)

    def write(self) -> None:
        """Two shards append batches and markers in one turn."""
        first, other = Series(4, 1), Series(5, 2)
        writes: list[Any] = [(0, first, RECORDS), (0, first, RECORDS, PRODUCER), (0, first, [], None, MARKER)]
        writes += [(0, first, RECORDS), (1, other, [], None, MARKER), (1, other, RECORDS)]
        batches = []
        for number, (index, series, records, *transactional) in enumerate(writes, 1):
            done = partial(lambda number, error: self.results.append((number, error)), number)
            batches.append(Batch(index, series, records, done, *transactional))
        self.log.append(batches, NOW_MS)


def test_batches_and_markers_are_appended_in_their_order_and_series() -> None:
    room = Room()
    room.write()
    assert room.appended == [
        (0, 1, (4, 1), RECORDS),
        (0, 2, (4, 1), RECORDS, PRODUCER),
        (TOPIC_ID, 0, 3, (4, 1), *PRODUCER, True, 5, 2),
        (0, 4, (4, 1), RECORDS),
        (TOPIC_ID, 1, 5, (5, 2), *PRODUCER, True, 5, 2),
        (1, 6, (5, 2), RECORDS),
    ]
    for token in (3, 1):
        room.appends.on_acked(token, 0)
    assert room.results == [(3, ErrorCode.NONE), (1, ErrorCode.NONE)]


def test_without_the_topic_every_append_is_refused() -> None:
    room = Room()
    room.topic_id = None
    room.write()
    assert room.results == [(number, NOT_LEADER) for number in range(1, 7)]
    assert room.appended == []


def test_after_an_exception_no_result_follows() -> None:
    """The shards are loaded again, whatever has become of the first batches."""
    room = Room()
    room.raises_at = 3
    with pytest.raises(OSError, match="no thread"):
        room.write()
    assert len(room.appended) == 3
    for token in range(1, 7):
        room.appends.on_acked(token, 0)
    assert room.results == []
