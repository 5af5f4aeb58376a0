"""Reading the partitions of a topic over the wire."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from klamm import records
from klamm.admin.client import LEADER_MOVED, Client, check
from klamm.admin.groups import LATEST, TopicPartition, list_offsets
from klamm.admin.topics import Topic, topics
from klamm.cli.records.positions import Position
from klamm.client import ClientError
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.records import Record

_PARTITION_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 16 << 20
_WAIT_MS: Final = 500
_LEADER_PAUSE_S: Final = 0.1
_LEADER_ATTEMPTS: Final = 50


class Reader:
    """Reads the partitions that it is assigned, to where they ended when it got them, or for ever."""

    def __init__(self, client: Client, topic: Topic, start: Position, *, follow: bool) -> None:
        """`start`: where to begin in a partition without a committed offset, or whose offset is gone."""
        self._client = client
        self._topic = topic.name
        self._leaders = _leaders(topic)
        self._start = start
        self._ends: dict[TopicPartition, int] | None = None if follow else {}
        self._moves = 0
        self.positions: dict[TopicPartition, int] = {}
        """Behind the last record that was done with, of each partition assigned."""

    def assign(self, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        """Read these too, each from its committed offset on where there is one."""
        new = [one for one in partitions if one not in committed]
        self.positions |= {one: committed[one] for one in partitions if one in committed}
        self.positions |= self._start.resolve(self._client, new, {}) if new else {}
        if self._ends is not None and partitions:
            self._ends |= list_offsets(self._client, dict.fromkeys(partitions, LATEST))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for one in partitions:
            self.positions.pop(one, None)

    @property
    def is_done(self) -> bool:
        """Whether everything was read; never when it follows."""
        return self._ends is not None and not self._unfinished()

    def poll(self) -> Iterator[tuple[TopicPartition, Record]]:
        """The records of a fetch from each leader, each with its partition. Whoever took one says `advance`."""
        unfinished = self._unfinished()
        for leader in sorted({self._leaders[one] for one in unfinished}):
            yield from self._fetch(leader, [one for one in unfinished if self._leaders[one] == leader])

    def advance(self, where: TopicPartition, offset: int) -> None:
        """The record at `offset` was done with."""
        self.positions[where] = offset + 1

    def _unfinished(self) -> list[TopicPartition]:
        ends = self._ends
        return [one for one, at in self.positions.items() if ends is None or at < ends[one]]

    def _fetch(self, leader: int, wanted: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Record]]:
        if leader < 0:
            self._find_leaders(wanted[0], ErrorCode.LEADER_NOT_AVAILABLE)
            return
        partitions = [
            {"partition": one[1], "fetch_offset": self.positions[one], "partition_max_bytes": _PARTITION_BYTES}
            for one in wanted
        ]
        answer = self._client.broker(leader).request(
            ApiKey.FETCH,
            12,
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[{"topic": self._topic, "partitions": partitions}],
        )
        check(answer.error_code, "fetch")
        for topic in answer.responses:
            for one in topic.partitions:
                yield from self._take((topic.topic, one.partition_index), one)

    def _take(self, where: TopicPartition, answer: Any) -> Iterator[tuple[TopicPartition, Record]]:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions |= self._start.resolve(self._client, [where], {})
            return
        if answer.error_code in LEADER_MOVED:
            self._find_leaders(where, answer.error_code)
            return
        check(answer.error_code, f"{where[0]}-{where[1]}")
        self._moves = 0
        data = answer.records or b""
        try:
            found = records.decode(data)
        except records.RecordsDamagedError as error:
            raise ClientError(f"{where[0]}-{where[1]} at offset {self.positions[where]}: {error}") from None
        for record in found:
            # A batch begins before the offset that was asked for when that lies inside.
            if record.offset >= self.positions[where]:
                yield where, record
        self.positions[where] = max(self.positions[where], records.next_offset(data) or 0)

    def _find_leaders(self, where: TopicPartition, code: int) -> None:
        self._moves += 1
        # Who follows waits for a leader as long as there is none; a topic that is gone is noticed below.
        if self._moves == _LEADER_ATTEMPTS and self._ends is not None:
            check(code, f"{where[0]}-{where[1]}")
        time.sleep(_LEADER_PAUSE_S)
        (topic,) = topics(self._client, [self._topic])
        self._leaders |= _leaders(topic)


def _leaders(topic: Topic) -> dict[TopicPartition, int]:
    return {(topic.name, one.index): one.leader for one in topic.partitions}
