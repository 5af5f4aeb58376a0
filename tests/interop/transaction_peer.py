"""Sends requests of transactions to a node, Apache Kafka's or klamm's."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from klamm import Cluster
from klamm._engine.records import encode_batch
from klamm.client.peer import PeerConfig, Peers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class
from tests.interop import apache_kafka
from tests.support.foreign import require

SYSTEMS = ("Apache Kafka", "klamm")
NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BAD_STATE = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
BOUND_S = 60.0
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"

Place = tuple[str, int]
T = TypeVar("T")


@contextlib.contextmanager
def running(system: str, folder: Path) -> Iterator[str]:
    """The bootstrap address of one of the systems; `folder` is for its files."""
    if system == "klamm":
        with Cluster(config=CONFIG) as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(folder / "data", CLUSTER_ID, CONFIG) as node:
        yield node.bootstrap


async def patiently(ask: Callable[[], Awaitable[T]], is_final: Callable[[T], bool]) -> T:
    """The first final response."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await ask()
            if is_final(found):
                return found
            await asyncio.sleep(0.02)


class Broker:
    """Sends single requests. `name` is the test's own transactional id and its topic of two partitions."""

    def __init__(self, bootstrap: str, name: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.bootstrap, self.address, self.name = bootstrap, (host, int(port)), name
        self.here, self.there = (name, 0), (name, 1)
        self._peers = Peers(PeerConfig("test", request_timeout_ms=30_000))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result()

    def close(self) -> None:
        self._peers.close()

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        body = encode(build(request_class(api_key, version), **fields))
        return decode_response(api_key, version, await self._peers.request(self.address, api_key, version, body))

    async def ready(self) -> None:
        """Wait until the coordinator of the id has loaded and the partitions have a leader."""
        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await patiently(
            lambda: self.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[self.name]),
            lambda found: found.coordinators[0].error_code is NONE,
        )
        await patiently(self.described, lambda found: found.error_code not in loading)
        for place in (self.here, self.there):
            await patiently(partial(self._end, place), lambda found: found.error_code is NONE)

    async def _end(self, place: Place) -> Any:
        topic = {"name": place[0], "partitions": [{"partition_index": place[1], "timestamp": -1}]}
        found = await self.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=1, topics=[topic])
        return found.topics[0].partitions[0]

    async def init_once(self, version: int = 5, **fields: Any) -> tuple[ErrorCode, int, int]:
        asked = {"transactional_id": self.name, "transaction_timeout_ms": 60_000} | fields
        found = await self.ask(ApiKey.INIT_PRODUCER_ID, version, **asked)
        return found.error_code, found.producer_id, found.producer_epoch

    async def init(self, version: int = 5, **fields: Any) -> tuple[ErrorCode, int, int]:
        """The first final response."""
        passing = (BUSY, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return await patiently(lambda: self.init_once(version, **fields), lambda found: found[0] not in passing)

    async def begin(self) -> tuple[int, int]:
        code, *pair = await self.init()
        assert code is NONE
        return pair[0], pair[1]

    async def add(self, version: int, pair: tuple[int, int], *places: Place, **fields: Any) -> list[ErrorCode]:
        """The code of each partition, in order."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        listed = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        values = dict(
            zip(
                ("transactional_id", "producer_id", "producer_epoch", "topics"), (self.name, *pair, listed), strict=True
            )
        )
        if version < 4:
            found = await self.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, version, **{f"v3_and_below_{k}": v for k, v in values.items()}
            )
            results = found.results_by_topic_v3_and_below
        else:
            found = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[values | fields])
            assert found.error_code is NONE
            results = found.results_by_transaction[0].topic_results
        codes = {
            (t.name, one.partition_index): one.partition_error_code for t in results for one in t.results_by_partition
        }
        return [codes[place] for place in places]

    async def end_once(self, version: int, pair: tuple[int, int], *, commit: bool = True) -> tuple[ErrorCode, int, int]:
        found = await self.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=self.name,
            producer_id=pair[0],
            producer_epoch=pair[1],
            committed=commit,
        )
        return found.error_code, getattr(found, "producer_id", -1), getattr(found, "producer_epoch", -1)

    async def end(self, version: int, pair: tuple[int, int], *, commit: bool = True) -> tuple[ErrorCode, int, int]:
        return await patiently(lambda: self.end_once(version, pair, commit=commit), lambda found: found[0] is not BUSY)

    async def described(self) -> Any:
        found = await self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
        return found.transaction_states[0]

    async def in_state(self, state: str) -> None:
        await patiently(self.described, lambda found: found.transaction_state == state)

    async def produce(
        self,
        version: int,
        pair: tuple[int, int],
        place: Place,
        sequence: int,
        *,
        transactional: bool = True,
        **fields: Any,
    ) -> ErrorCode:
        rows = [(1000, b"k", b"%d" % sequence)]
        batch = encode_batch(
            rows, producer_id=pair[0], producer_epoch=pair[1], base_sequence=sequence, transactional=transactional
        )
        topic = {"name": place[0], "partition_data": [{"index": place[1], "records": batch}]}
        asked = {"transactional_id": self.name, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]} | fields
        found = await self.ask(ApiKey.PRODUCE, version, **asked)
        code: ErrorCode = found.responses[0].partition_responses[0].error_code
        return code

    async def stable_offset(self, place: Place) -> int:
        offset: int = (await self._end(place)).offset
        return offset

    async def producers(self, place: Place) -> list[Any]:
        topic = {"name": place[0], "partition_indexes": [place[1]]}
        found = await self.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[topic])
        return list(found.topics[0].partitions[0].active_producers)

    async def mark(
        self,
        pair: tuple[int, int],
        *places: Place,
        commit: bool = False,
        epoch: int = 0,
        version: int = 2,
        level: int = 0,
    ) -> list[ErrorCode]:
        """WriteTxnMarkers for one transaction; `level` is its transaction version."""
        marker = {
            "producer_id": pair[0],
            "producer_epoch": pair[1],
            "transaction_result": commit,
            "topics": [{"name": topic, "partition_indexes": [index]} for topic, index in places],
            "coordinator_epoch": epoch,
            "transaction_version": level,
        }
        found = await self.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
        codes = {
            (topic.name, one.partition_index): one.error_code
            for topic in found.markers[0].topics
            for one in topic.partitions
        }
        return [codes[place] for place in places]

    async def commit_offsets(self, version: int, pair: tuple[int, int], offset: int) -> ErrorCode:
        """TxnOffsetCommit for one partition; the group has the test's name."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        found = await self.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=self.name,
            group_id=self.name,
            producer_id=pair[0],
            producer_epoch=pair[1],
            topics=[{"name": self.name, "partitions": [partition]}],
        )
        code: ErrorCode = found.topics[0].partitions[0].error_code
        return code

    async def offset(self, *, stable: bool = True) -> tuple[ErrorCode, int]:
        """The group's committed offset of that partition."""
        topic = {"name": self.name, "partition_indexes": [0]}
        groups = [{"group_id": self.name, "topics": [topic]}]
        found = await self.ask(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=stable)
        [partition] = found.groups[0].topics[0].partitions
        return partition.error_code, partition.committed_offset

    async def group_is_ready(self) -> None:
        await patiently(
            lambda: self.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[self.name]),
            lambda found: found.coordinators[0].error_code is NONE,
        )
        passing = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        groups = [{"group_id": self.name, "topics": None}]
        await patiently(
            lambda: self.ask(ApiKey.OFFSET_FETCH, 8, groups=groups),
            lambda found: found.groups[0].error_code not in passing,
        )

    async def verify_partitions(self, *, on: bool) -> None:
        config = {"name": "transaction.partition.verification.enable", "config_operation": 0, "value": str(on).lower()}
        resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
        found = await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert found.responses[0].error_code is NONE


@contextlib.asynccontextmanager
async def connected(bootstrap: str, test: str) -> AsyncIterator[Broker]:
    """A broker for a test, once it serves the test's id and topic."""
    broker = Broker(bootstrap, re.sub(r"\W+", "-", test.removeprefix("test_")))
    await broker.ready()
    yield broker
    broker.close()


@contextlib.asynccontextmanager
async def without_verification(broker: Broker) -> AsyncIterator[None]:
    """The partition leaders do not verify transactions with the coordinator."""
    await broker.verify_partitions(on=False)
    await patiently(lambda: broker.produce(9, (666_666, 0), broker.here, 0), lambda code: code is NONE)
    assert await broker.mark((666_666, 0), broker.here) == [NONE]
    yield
    await broker.verify_partitions(on=True)
