"""The end offsets of partitions, wherever their leaders are (Kafka's `NetworkPartitionMetadataClient`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

from klamm._engine.metadata import Image
from klamm._engine.node import Engine
from klamm.client import ClientError, ClientTimeoutError
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.partitions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from klamm.node.coordinators.other_brokers import OtherBrokers

LATEST: Final = -1
VERSIONS: Final = (1, 11)

Place = tuple[str, int]
"""Topic and partition."""
Ends = Mapping[Place, tuple[ErrorCode, int]]


class EndOffsets:
    """Asks leaders for the offsets after the last records that consumers can read."""

    def __init__(
        self, node_id: int, engine: Engine, image: Callable[[], Image], others: Callable[[], OtherBrokers]
    ) -> None:
        self._node_id, self._engine, self._image, self._others = node_id, engine, image, others

    async def __call__(self, places: Iterable[Place]) -> Ends:
        """The end offset of each partition, or an error."""
        by_leader: dict[int | None, list[Place]] = {}
        for place in places:
            by_leader.setdefault(self._leader(place), []).append(place)
        found = await asyncio.gather(*(self._of_leader(*each) for each in by_leader.items()))
        return {place: end for ends in found for place, end in ends.items()}

    def _leader(self, place: Place) -> int | None:
        image = self._image()
        topic_id = image.topic_id(place[0])
        found = None if topic_id is None else image.partition(topic_id, place[1])
        if found is None:
            return None
        is_here = found.leader == self._node_id
        return found.leader if is_here or self._others().is_reachable(found.leader) else None

    async def _of_leader(self, leader: int | None, places: list[Place]) -> Ends:
        if leader is None:
            return dict.fromkeys(places, (ErrorCode.LEADER_NOT_AVAILABLE, LATEST))
        if leader == self._node_id:
            return {place: await self._here(place) for place in places}
        topics = tuple(
            ListOffsetsTopic(name, tuple(ListOffsetsPartition(index, LATEST) for _, index in group))
            for name, group in groupby(sorted(places), lambda place: place[0])
        )
        try:
            answer = await self._others().ask(leader, ListOffsetsRequest(topics), ListOffsetsResponse, VERSIONS)
        except ClientError as error:
            is_late = isinstance(error, ClientTimeoutError)
            code = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NETWORK_EXCEPTION
            return dict.fromkeys(places, (code, LATEST))
        ends = {
            (topic.name, one.partition_index): (one.error_code, one.offset)
            for topic in answer.topics
            for one in topic.partitions
        }
        return {place: ends.get(place, (ErrorCode.UNKNOWN_SERVER_ERROR, LATEST)) for place in places}

    async def _here(self, place: Place) -> tuple[ErrorCode, int]:
        topic_id = self._image().topic_id(place[0])
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, LATEST
        try:
            await opened(self._engine, topic_id, place[1])
            return ErrorCode.NONE, self._engine.high_watermark(topic_id, place[1])
        except KafkaError as error:
            return error.code, LATEST
