"""DeleteRecords (21) and DescribeProducers (61)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from klamm.broker.request import RequestContext
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.topic_names import check_topic_name
from klamm.protocol.wire.codec import (
    build,
    decode_request,
    encode,
)
from klamm.protocol.wire.kio_classes import response_class


class Partitions(Protocol):
    """The local partitions as these handlers use them. Topics are identified by name; all methods raise KafkaError."""

    async def delete_records(self, topic: str, partition: int, offset: int, timeout_ms: int) -> tuple[int, bool]:
        """Move the log start to `offset` (-1: to the high watermark) on all live replicas.

        The low watermark, and whether it was reached in time.
        """
        ...

    async def producers(self, topic: str, partition: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        """Active ones: id, epoch, last sequence, last timestamp in ms, coordinator epoch, open transaction's start."""
        ...


class RecordHandlers:
    """Serves the APIs of this file."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def delete_records(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """KIP-107: each partition's new log start, or its error. Of a partition named twice the last one counts."""
        request = decode_request(ApiKey.DELETE_RECORDS, version, body)
        offsets: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            found = offsets.setdefault(topic.name, {})
            found |= {item.partition_index: item.offset for item in topic.partitions}
        timeout_ms = round(request.timeout.total_seconds() * 1000)
        topics = []
        for name, partitions in offsets.items():
            if not partitions:
                continue
            work = (self._delete(name, partition, offset, timeout_ms) for partition, offset in partitions.items())
            topics.append({"name": name, "partitions": await asyncio.gather(*work)})
        return encode(build(response_class(ApiKey.DELETE_RECORDS, version), topics=topics))

    async def _delete(self, topic: str, partition: int, offset: int, timeout_ms: int) -> dict[str, Any]:
        try:
            low_watermark, is_done = await self._partitions.delete_records(topic, partition, offset, timeout_ms)
        except KafkaError as error:
            return {"partition_index": partition, "low_watermark": -1, "error_code": error.code}
        code = ErrorCode.NONE if is_done else ErrorCode.REQUEST_TIMED_OUT
        return {"partition_index": partition, "low_watermark": low_watermark, "error_code": code}

    async def describe_producers(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """KIP-664: the producers whose state each partition remembers."""
        request = decode_request(ApiKey.DESCRIBE_PRODUCERS, version, body)
        topics = [
            {
                "name": topic.name,
                "partitions": [await self._producers(topic.name, index) for index in topic.partition_indexes],
            }
            for topic in request.topics
        ]
        return encode(build(response_class(ApiKey.DESCRIBE_PRODUCERS, version), topics=topics))

    async def _producers(self, topic: str, partition: int) -> dict[str, Any]:
        try:
            check_topic_name(topic)
            found = await self._partitions.producers(topic, partition)
        except KafkaError as error:
            return {"partition_index": partition, "error_code": error.code, "error_message": error.message}
        names = (
            "producer_id",
            "producer_epoch",
            "last_sequence",
            "last_timestamp",
            "coordinator_epoch",
            "current_txn_start_offset",
        )
        producers = [dict(zip(names, producer, strict=True)) for producer in found]
        return {"partition_index": partition, "error_code": ErrorCode.NONE, "active_producers": producers}
