"""Sends requests of share groups to a node, Apache Kafka's or klamm's."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client.peer import PeerConfig, Peers
from klamm.coordinator.runtime.placement import partition_of
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class
from tests.interop.share_states import BOUND_S, CONFIG, NONE, patiently

PARTITIONS = 2
"""Of `__consumer_offsets`."""
GROUP_CONFIG = CONFIG | {"offsets.topic.num.partitions": str(PARTITIONS), "group.share.assignment.interval.ms": "0"}
Named = dict[str, list[int]]
"""Partitions by topic name."""


class Node:
    """Sends single requests. `name` is that of the test's own group and of its topic of 3 partitions."""

    def __init__(self, bootstrap: str, name: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.bootstrap, self.address, self.name = bootstrap, (host, int(port)), name
        self.other = f"{name}-other"
        self._peers = Peers(PeerConfig("test", request_timeout_ms=30_000))
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.names: dict[uuid.UUID, str] = {}

    def close(self) -> None:
        self._peers.close()

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        body = encode(build(request_class(api_key, version), **fields))
        return decode_response(api_key, version, await self._peers.request(self.address, api_key, version, body))

    async def ready(self) -> None:
        """Wait until share groups are enabled, the topics have leaders, and both coordinators have loaded."""
        level = {"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}
        await self.ask(ApiKey.UPDATE_FEATURES, 1, timeout_ms=30_000, feature_updates=[level], validate_only=False)
        topics = {self.name: 3, self.other: 1}
        known = (await asyncio.to_thread(self.admin.list_topics, timeout=30)).topics
        missing = [NewTopic(name, count, 1) for name, count in topics.items() if name not in known]
        for future in self.admin.create_topics(missing).values() if missing else ():
            await asyncio.wrap_future(future)
        found = await patiently(
            lambda: self.ask(ApiKey.METADATA, 12, topics=[{"name": one, "topic_id": None} for one in topics]),
            lambda found: all(
                topic.error_code is NONE and all(one.error_code is NONE for one in topic.partitions)
                for topic in found.topics
            ),
        )
        self.names = {topic.topic_id: topic.name for topic in found.topics}
        for kind, key in ((0, self.name), (2, f"g:{'A' * 22}:0")):
            await patiently(
                lambda kind=kind, key=key: self.ask(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=[key]),
                lambda found: found.coordinators[0].error_code is NONE,
            )
        passing = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await patiently(
            lambda: self.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[self.name]),
            lambda found: found.groups[0].error_code not in passing,
        )
        # The coordinator may learn about a new topic later than the rest of its broker.
        place = partition_of(self.name, PARTITIONS)
        probe = next(one for at in range(100) if partition_of(one := f"probe-{self.name}-{at}", PARTITIONS) == place)
        everything = {name: list(range(count)) for name, count in topics.items()}
        _, _, epoch, assigned = await self.beat("probe", 0, list(topics), group_id=probe)
        if assigned != everything:
            await self.beats_until("probe", epoch, everything, group_id=probe)
        await self.beat("probe", -1, group_id=probe)

    async def beat(
        self, member_id: str, epoch: int, names: Sequence[str] | None = None, /, **fields: Any
    ) -> tuple[ErrorCode, str | None, int, Named | None]:
        """A heartbeat; returns code, message, member epoch and assignment."""
        asked = {"group_id": self.name, "member_id": member_id, "member_epoch": epoch, "subscribed_topic_names": names}
        found = await self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **(asked | fields))
        assigned = None if found.assignment is None else self._named(found.assignment.topic_partitions)
        return found.error_code, found.error_message, found.member_epoch, assigned

    def _named(self, topics: Any) -> Named:
        return {self.names[topic.topic_id]: sorted(topic.partitions) for topic in topics}

    async def beats_until(self, member_id: str, epoch: int, expected: Named, **fields: Any) -> int:
        """Send heartbeats until the member has these partitions. Returns its epoch."""
        epochs = [epoch]

        async def once() -> Named | None:
            code, message, epochs[0], assigned = await self.beat(member_id, epochs[0], None, **fields)
            assert code is NONE, message
            return assigned

        await patiently(once, lambda assigned: assigned == expected)
        return epochs[0]

    async def described(self, group_id: str | None = None) -> Any:
        found = await self.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[self.name if group_id is None else group_id])
        return found.groups[0]

    async def offsets(self, topics: dict[str, list[int]] | None, version: int = 1, **fields: Any) -> Any:
        """The response for the group."""
        listed = None if topics is None else [{"topic_name": k, "partitions": v} for k, v in topics.items()]
        groups = [{"group_id": self.name, "topics": listed} | fields]
        return (await self.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=groups)).groups[0]

    async def starts(self, topics: dict[str, list[int]] | None) -> dict[tuple[str, int], tuple[int, int, ErrorCode]]:
        """Start offset, lag and code by topic and partition."""
        found = await self.offsets(topics)
        assert found.error_code is NONE
        return {
            (topic.topic_name, one.partition_index): (one.start_offset, one.lag, one.error_code)
            for topic in found.topics
            for one in topic.partitions
        }

    async def alter(self, topics: dict[str, dict[int, int]], **fields: Any) -> Any:
        listed = [
            {
                "topic_name": name,
                "partitions": [{"partition_index": at, "start_offset": offset} for at, offset in offsets.items()],
            }
            for name, offsets in topics.items()
        ]
        return await self.ask(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **({"group_id": self.name, "topics": listed} | fields)
        )

    async def delete_offsets(self, *topics: str, **fields: Any) -> Any:
        listed = [{"topic_name": name} for name in topics]
        asked = {"group_id": self.name, "topics": listed} | fields
        return await self.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, **asked)

    async def delete(self, *group_ids: str) -> dict[str, ErrorCode]:
        found = await self.ask(ApiKey.DELETE_GROUPS, 2, groups_names=group_ids or (self.name,))
        return {one.group_id: one.error_code for one in found.results}

    async def listed(self, *types: str) -> set[tuple[str, str, str, str]]:
        found = await self.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=types)
        return {
            (one.group_id, one.protocol_type, one.group_state, one.group_type)
            for one in found.groups
            if one.group_id.startswith(self.name)
        }

    def group_records(self) -> list[tuple[bytes, bytes | None]]:
        """The group's records in `__consumer_offsets`, up to its last tombstone."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        partition = partition_of(self.name, PARTITIONS)
        consumer.assign([TopicPartition("__consumer_offsets", partition, OFFSET_BEGINNING)])
        name = len(self.name).to_bytes(2, "big") + self.name.encode()
        found: list[tuple[bytes, bytes | None]] = []
        until = time.monotonic() + BOUND_S
        while not (found and found[-1] == (b"\0\x0b" + name, None)) and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and not message.error() and message.key()[2:].startswith(name):
                found.append((message.key(), message.value()))
        consumer.close()
        return found
