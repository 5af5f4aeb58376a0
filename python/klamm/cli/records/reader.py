"""Reading the partitions of a topic over the wire."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm import records
from klamm.admin.client import LEADER_MOVED, Client, check
from klamm.admin.groups import LATEST, list_offsets
from klamm.admin.topics import Topic, topics
from klamm.cli.records.positions import Position
from klamm.client import ClientError, UnreachableError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.quorum_messages import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from klamm.protocol.topic_partition import TopicPartition
from klamm.records import Record

_FETCH_VERSION_MAX: Final = 12
"""Later versions name topics by id."""
_PARTITION_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 16 << 20
_WAIT_MS: Final = 500
NO_LEADER: Final = -1
_LEADER_PAUSE_S: Final = 0.1
_LEADER_ATTEMPTS: Final = 50


class Received(NamedTuple):
    """A record and its partition; in a share group also how often it was delivered, this time included."""

    where: TopicPartition
    record: Record
    delivery_count: int | None = None


class Reader:
    """Reads its assigned partitions to the ends that they had at the assignment, or without end."""

    def __init__(self, client: Client, topic: Topic, start: Position, *, follow: bool) -> None:
        """`start`: the position in a partition without a committed offset, or with one that is out of range."""
        self._client = client
        self._topic = topic.name
        self._leaders = _leaders(topic)
        self._start = start
        self._ends: dict[TopicPartition, int] | None = None if follow else {}
        self._moves = 0
        self.positions: dict[TopicPartition, int] = {}
        """The offset after the last processed record of each assigned partition."""

    def assign(self, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        """Read these partitions as well, each from its committed offset if there is one."""
        new = [one for one in partitions if one not in committed]
        self.positions |= {one: committed[one] for one in partitions if one in committed}
        self.positions |= self._start.resolve(self._client, new, {}) if new else {}
        if self._ends is not None and partitions:
            self._ends |= list_offsets(self._client, dict.fromkeys(partitions, LATEST))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for one in partitions:
            self.positions.pop(one, None)

    @property
    def is_done(self) -> bool:
        """Whether everything was read; never true when following."""
        return self._ends is not None and not self._unfinished()

    def poll(self) -> Iterator[Received]:
        """The records of a fetch from each leader, each with its partition. Call `advance` after processing one."""
        unfinished = self._unfinished()
        for leader in sorted({self._leaders[one] for one in unfinished}):
            yield from self._fetch(leader, [one for one in unfinished if self._leaders[one] == leader])

    def advance(self, where: TopicPartition, offset: int) -> None:
        """The record at `offset` was processed."""
        self.positions[where] = offset + 1

    def _unfinished(self) -> list[TopicPartition]:
        ends = self._ends
        return [one for one, at in self.positions.items() if ends is None or at < ends[one]]

    def _fetch(self, leader: int, wanted: list[TopicPartition]) -> Iterator[Received]:
        if leader == NO_LEADER:
            self._find_leaders(wanted[0], ErrorCode.LEADER_NOT_AVAILABLE)
            return
        partitions = tuple(FetchPartition(one.partition, self.positions[one], _PARTITION_BYTES) for one in wanted)
        topic = FetchTopic(partitions, topic=self._topic)
        request = FetchRequest(_WAIT_MS, (topic,), min_bytes=1, max_bytes=_ANSWER_BYTES)
        try:
            answer = self._client.broker(leader).ask(request, FetchResponse, _FETCH_VERSION_MAX)
        except UnreachableError:
            # Another broker may lead these partitions by the next attempt.
            self._leaders |= dict.fromkeys(wanted, NO_LEADER)
            raise
        check(answer.error_code, "fetch")
        for found in answer.responses:
            for one in found.partitions:
                yield from self._take(TopicPartition(found.topic, one.partition_index), one)

    def _take(self, where: TopicPartition, answer: FetchPartitionData) -> Iterator[Received]:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions |= self._start.resolve(self._client, [where], {})
            return
        if answer.error_code in LEADER_MOVED:
            self._find_leaders(where, answer.error_code)
            return
        check(answer.error_code, str(where))
        self._moves = 0
        data = answer.records or b""
        try:
            found = records.decode(data)
        except records.RecordsDamagedError as error:
            raise ClientError(f"{where} at offset {self.positions[where]}: {error}") from None
        for record in found:
            # A batch may begin before the requested offset.
            if record.offset >= self.positions[where]:
                yield Received(where, record)
        self.positions[where] = max(self.positions[where], records.next_offset(data) or 0)

    def _find_leaders(self, where: TopicPartition, code: int) -> None:
        self._moves += 1
        # When following, wait for a leader without limit; a deleted topic is detected below.
        if self._moves == _LEADER_ATTEMPTS and self._ends is not None:
            check(code, str(where))
        time.sleep(_LEADER_PAUSE_S)
        (topic,) = topics(self._client, [self._topic])
        self._leaders |= _leaders(topic)


def _leaders(topic: Topic) -> dict[TopicPartition, int]:
    return {TopicPartition(topic.name, one.index): one.leader for one in topic.partitions}
