"""Share groups and their states on clusters of one and three brokers, with raw requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm import Cluster
from klamm.client import ClientError
from klamm.client.peer import PeerConfig, Peers
from klamm.coordinator.runtime.placement import partition_of
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import SharePartitionKey
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

pytestmark = pytest.mark.timeout(180)

NONE = ErrorCode.NONE
GROUP = "shared"
TOPIC = "orders"
PARTITIONS = 6
STATE_TOPIC = "__share_group_state"
STATE_PARTITIONS = 3
BOUND_S = 60.0
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
}
PRUNED = CONFIG | {
    "share.coordinator.state.topic.prune.interval.ms": "200",
    "share.coordinator.cold.partition.snapshot.interval.ms": "300",
}
Address = tuple[str, int]


class Client:
    """Sends single requests to the first broker of a cluster that answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._peers = Peers(PeerConfig("test", request_timeout_ms=30_000))

    def close(self) -> None:
        self._peers.close()

    def _addresses(self) -> list[Address]:
        found = (one.rpartition(":") for one in self._cluster.bootstrap_servers.split(","))
        return [(host, int(port)) for host, _, port in found]

    async def ask(self, api_key: int, version: int, address: Address, **fields: Any) -> Any:
        body = encode(build(request_class(api_key, version), **fields))
        return decode_response(api_key, version, await self._peers.request(address, api_key, version, body))

    async def find(self, kind: int, key: str) -> Address:
        """The coordinator of a key."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for address in self._addresses():
                    try:
                        found = await self.ask(
                            ApiKey.FIND_COORDINATOR, 6, address, key_type=kind, coordinator_keys=[key]
                        )
                    except ClientError:
                        continue
                    if found.coordinators[0].error_code is NONE:
                        return found.coordinators[0].host, found.coordinators[0].port
                await asyncio.sleep(0.05)

    async def enable(self) -> None:
        level = {"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}
        fields = {"timeout_ms": 30_000, "feature_updates": [level], "validate_only": False}
        found = await self.ask(ApiKey.UPDATE_FEATURES, 2, self._addresses()[0], **fields)
        assert found.error_code is NONE

    async def alter(self, offsets: dict[int, int]) -> list[ErrorCode]:
        """Retry until the coordinator has loaded, and knows the topic and that share groups are enabled."""
        passing = {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        partitions = [{"partition_index": at, "start_offset": offset} for at, offset in offsets.items()]
        fields = {"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": partitions}]}
        async with asyncio.timeout(BOUND_S):
            while True:
                coordinator = await self.find(0, GROUP)
                found = await self.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, coordinator, **fields)
                codes = [one.error_code for topic in found.responses for one in topic.partitions]
                if not passing & {found.error_code, *codes}:
                    assert found.error_code is NONE, found
                    return codes
                await asyncio.sleep(0.05)

    async def starts(self) -> dict[int, tuple[int, int]]:
        """Start offset and lag of each partition."""
        fields = {"groups": [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": range(PARTITIONS)}]}]}
        found = await self.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, await self.find(0, GROUP), **fields)
        [topic] = found.groups[0].topics
        return {one.partition_index: (one.start_offset, one.lag) for one in topic.partitions}

    async def starts_are(self, expected: dict[int, tuple[int, int]]) -> None:
        found: dict[int, tuple[int, int]] = {}
        try:
            async with asyncio.timeout(BOUND_S):
                while found != expected:
                    try:
                        found = await self.starts()
                    except ClientError:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            assert found == expected

    async def log_start(self, partition: int) -> int:
        """The log start offset of a partition of `__share_group_state`, on a single-broker cluster."""
        asked = {"partition_index": partition, "timestamp": -2, "current_leader_epoch": -1}
        topics = [{"name": STATE_TOPIC, "partitions": [asked]}]
        found = await self.ask(ApiKey.LIST_OFFSETS, 7, self._addresses()[0], replica_id=-1, topics=topics)
        offset: int = found.topics[0].partitions[0].offset
        return offset

    async def are_pruned(self, partitions: Iterable[int]) -> None:
        """Wait until the logs of these partitions of `__share_group_state` no longer start at 0."""
        async with asyncio.timeout(BOUND_S):
            while True:
                starts = [await self.log_start(partition) for partition in partitions]
                if all(starts):
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def client_of(cluster: Cluster) -> AsyncIterator[Client]:
    client = Client(cluster)
    try:
        await client.enable()
        yield client
    finally:
        client.close()


@pytest.fixture
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield cluster


async def test_states_on_three_brokers_survive_the_loss_of_one(three: Cluster) -> None:
    async with client_of(three) as client:
        altered = {partition: 10 * partition for partition in range(PARTITIONS)}
        assert await client.alter(altered) == [NONE] * PARTITIONS
        expected = {partition: (offset, -offset) for partition, offset in altered.items()}
        assert await client.starts() == expected
        _, port = await client.find(0, GROUP)
        lost = next(broker for broker in three.brokers if not broker.address.endswith(f":{port}"))
        lost.kill()
        await client.starts_are(expected)
        assert await client.alter({0: 3}) == [NONE]
        await client.starts_are(expected | {0: (3, -3)})
        lost.start()
        await client.starts_are(expected | {0: (3, -3)})


async def test_the_log_of_states_is_pruned_and_loaded_again() -> None:
    with Cluster(config=PRUNED) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        async with client_of(cluster) as client:
            for number in range(5):
                assert await client.alter(dict.fromkeys(range(PARTITIONS), number)) == [NONE] * PARTITIONS
            places = await places_of_states(client)
            await client.are_pruned(places)
            [broker] = cluster.brokers
            name = "kafka.server:type=share-coordinator-metrics,name=last-pruned-offset"
            assert any(gauge.startswith(name) and offset > 0 for gauge, offset in broker.gauges().items())
            assert broker.counters()["kafka.server:type=share-coordinator-metrics,name=write-total"] >= 30
            expected = dict.fromkeys(range(PARTITIONS), (4, -4))
            assert await client.starts() == expected
            broker.stop()
            broker.start()
            await client.starts_are(expected)
            assert all([await client.log_start(place) > 0 for place in places])


async def places_of_states(client: Client) -> set[int]:
    """The partitions of `__share_group_state` that contain a state of the group."""
    coordinator = await client.find(0, GROUP)
    found = await client.ask(ApiKey.METADATA, 12, coordinator, topics=[{"name": TOPIC, "topic_id": None}])
    topic_id = found.topics[0].topic_id.bytes
    keys = (SharePartitionKey(GROUP, topic_id, partition) for partition in range(PARTITIONS))
    return {partition_of(key.coordinator_key(), STATE_PARTITIONS) for key in keys}
