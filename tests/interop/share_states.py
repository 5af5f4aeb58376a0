"""Sends requests to the share coordinator of either system's node, and reads the records that it writes."""

from __future__ import annotations

import asyncio
import datetime
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client.peer import PeerConfig, Peers
from klamm.coordinator.runtime.placement import partition_of
from klamm.coordinator.share.records import SNAPSHOT, UPDATE, share_key
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import SharePartitionKey
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
BOUND_S = 60.0
STATE_TOPIC = "__share_group_state"
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]], is_final: Callable[[T], bool]) -> T:
    """The first final response."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await ask()
            if is_final(found):
                return found
            await asyncio.sleep(0.02)


class Broker:
    """Sends single requests about partition 0 of the test's topic, and about its group of the same name."""

    def __init__(self, bootstrap: str, name: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address, self.name = (host, int(port)), name
        self._peers = Peers(PeerConfig("test", request_timeout_ms=30_000))
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        if name not in self.admin.list_topics(timeout=30).topics:
            self.admin.create_topics([NewTopic(name, 1, 1)])[name].result()
        self.topic_id = uuid.UUID(int=0)

    def close(self) -> None:
        self._peers.close()

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        body = encode(build(request_class(api_key, version), **fields))
        return decode_response(api_key, version, await self._peers.request(self.address, api_key, version, body))

    async def enable(self) -> None:
        """Raise share.version to 1 if it is lower."""
        update = {"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}
        found = await self.ask(
            ApiKey.UPDATE_FEATURES, 1, timeout=datetime.timedelta(seconds=60), feature_updates=[update]
        )
        assert found.error_code is NONE or found.results[0].error_code is NONE, found

    async def find(self, key: str, version: int = 6) -> ErrorCode:
        found = await self.ask(ApiKey.FIND_COORDINATOR, version, key_type=2, coordinator_keys=[key])
        code: ErrorCode = found.coordinators[0].error_code
        return code

    async def ready(self) -> None:
        """Wait until the topic has a leader and the coordinator of its partition has loaded."""
        found = await patiently(
            lambda: self.ask(ApiKey.METADATA, 12, topics=[{"name": self.name, "topic_id": None}]),
            lambda found: found.topics[0].error_code is NONE and found.topics[0].partitions[0].error_code is NONE,
        )
        self.topic_id = found.topics[0].topic_id
        key = SharePartitionKey(self.name, self.topic_id.bytes, 0).coordinator_key()
        await patiently(lambda: self.find(key), lambda code: code is NONE)
        passing = (UNAVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN)
        await patiently(self.summary, lambda found: found[0] not in passing)

    async def _one(self, api_key: int, version: int, fields: dict[str, Any], **place: Any) -> Any:
        """The result for one partition."""
        topic_id, index = place.get("topic_id", self.topic_id), place.get("partition", 0)
        topics = [{"topic_id": topic_id, "partitions": [{"partition": index} | fields]}]
        found = await self.ask(api_key, version, group_id=place.get("group", self.name), topics=topics)
        [topic] = found.results
        assert topic.topic_id == topic_id
        [result] = topic.partitions
        assert result.partition == index
        return result

    async def initialize(self, state_epoch: int, start_offset: int = -1, **place: Any) -> tuple[ErrorCode, str | None]:
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        found = await self._one(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, fields, **place)
        return found.error_code, found.error_message

    async def read(self, leader_epoch: int, **place: Any) -> tuple[Any, ...]:
        """Read; returns code, message, state epoch, start offset and batches."""
        found = await self._one(ApiKey.READ_SHARE_GROUP_STATE, 0, {"leader_epoch": leader_epoch}, **place)
        return found.error_code, found.error_message, found.state_epoch, found.start_offset, batches(found)

    async def write(
        self, leader_epoch: int, state_epoch: int, *changed: tuple[int, int, int, int], **rest: Any
    ) -> tuple[ErrorCode, str | None]:
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        fields = {
            "leader_epoch": leader_epoch,
            "state_epoch": state_epoch,
            "start_offset": rest.pop("start_offset", -1),
            "delivery_complete_count": rest.pop("count", -1),
            "state_batches": [dict(zip(names, batch, strict=True)) for batch in changed],
        }
        found = await self._one(ApiKey.WRITE_SHARE_GROUP_STATE, rest.pop("version", 1), fields, **rest)
        return found.error_code, found.error_message

    async def delete(self, **place: Any) -> tuple[ErrorCode, str | None]:
        found = await self._one(ApiKey.DELETE_SHARE_GROUP_STATE, 0, {}, **place)
        return found.error_code, found.error_message

    def records(self, key: SharePartitionKey, count: int) -> list[tuple[bytes, bytes | None]]:
        """The first records of a share partition, without times."""
        settings = {"bootstrap.servers": ":".join(map(str, self.address)), "group.id": "reader"}
        consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        partition = partition_of(key.coordinator_key(), 2)
        consumer.assign([TopicPartition(STATE_TOPIC, partition, OFFSET_BEGINNING)])
        found: list[tuple[bytes, bytes | None]] = []
        until = time.monotonic() + BOUND_S
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1)
            if message is None or message.error():
                continue
            record_type, value = message.key()[:2], message.value()
            if message.key() not in (share_key(SNAPSHOT, key), share_key(UPDATE, key)):
                continue
            if value is not None and record_type == b"\0\0":
                assert value[TIMES_AT][:8] == value[TIMES_AT][8:]
                value = value[: TIMES_AT.start] + bytes(16) + value[TIMES_AT.stop :]
            found.append((message.key(), value))
        consumer.close()
        return found

    async def summary(self, version: int = 1, **place: Any) -> tuple[Any, ...]:
        """Code, message, state epoch, leader epoch, start offset and (from version 1 on) count."""
        found = await self._one(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, {"leader_epoch": -1}, **place)
        count = (found.delivery_complete_count,) if version >= 1 else ()
        return found.error_code, found.error_message, found.state_epoch, found.leader_epoch, found.start_offset, *count


TIMES_AT = slice(2 + 3 * 4 + 8, 2 + 3 * 4 + 8 + 16)
"""Where a snapshot has its two times."""


def batches(result: Any) -> list[tuple[int, int, int, int]]:
    return [(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in result.state_batches]
