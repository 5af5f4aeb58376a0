"""The transaction APIs request by request: Apache Kafka 4.3.1 and klamm give the same responses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klamm import Cluster
from klamm._engine.records import encode_batch
from klamm.client.peer import PeerConfig, Peers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class
from tests.interop import apache_kafka
from tests.interop.apache_kafka import tool
from tests.support.foreign import require

pytestmark = pytest.mark.timeout(300)

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


@pytest.fixture(scope="module", params=["Apache Kafka", "klamm"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "klamm":
        with Cluster(config=CONFIG) as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, CONFIG) as node:
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


@pytest.fixture
async def unverified(broker: Broker) -> AsyncIterator[None]:
    """The partition leaders do not verify transactions with the coordinator."""
    await broker.verify_partitions(on=False)
    await patiently(lambda: broker.produce(9, (666_666, 0), broker.here, 0), lambda code: code is NONE)
    assert await broker.mark((666_666, 0), broker.here) == [NONE]
    yield
    await broker.verify_partitions(on=True)


@pytest.fixture
async def broker(bootstrap: str, request: pytest.FixtureRequest) -> Any:
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))
    made = Broker(bootstrap, name)
    await made.ready()
    yield made
    made.close()


async def test_pairs(broker: Broker) -> None:
    code, producer_id, epoch = await broker.init()
    assert (code, epoch) == (NONE, 0)
    assert await broker.init() == (NONE, producer_id, 1)
    for _ in range(2):
        assert await broker.init(producer_id=producer_id, producer_epoch=1) == (NONE, producer_id, 2)
    assert await broker.init(4, producer_id=producer_id, producer_epoch=0) == (FENCED, -1, -1)
    assert await broker.init(3, producer_id=producer_id, producer_epoch=0) == (OLD_EPOCH, -1, -1)
    assert await broker.init(producer_id=producer_id + 999, producer_epoch=2) == (FENCED, -1, -1)


async def test_bad_requests(broker: Broker) -> None:
    for fields in ({"producer_id": 7}, {"producer_epoch": 7}, {"transactional_id": ""}):
        assert await broker.init(**fields) == (ErrorCode.INVALID_REQUEST, -1, -1), fields
    for timeout_ms in (0, -1, 900_001):
        refused = await broker.init(transaction_timeout_ms=timeout_ms)
        assert refused == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    code, _, epoch = await broker.init(transactional_id=None, transaction_timeout_ms=0)
    assert (code, epoch) == (NONE, 0)
    refused = await broker.init(transactional_id=None, producer_id=7)
    assert refused == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_an_open_transaction_is_aborted(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.add(3, pair, broker.here) == [NONE]
    assert await broker.produce(9, pair, broker.here, 0) is NONE
    assert await broker.init_once() == (BUSY, -1, -1)
    assert await broker.init() == (NONE, pair[0], pair[1] + 2)
    assert await broker.produce(9, pair, broker.here, 1) is OLD_EPOCH
    assert (await broker.end_once(4, pair))[0] is FENCED
    assert (await broker.end_once(1, pair))[0] is OLD_EPOCH


async def test_unknown_ids(broker: Broker) -> None:
    assert await broker.add(3, (1, 0), broker.here) == [NO_MAPPING]
    assert await broker.add(4, (1, 0), broker.here, verify_only=True) == [NO_MAPPING]
    assert (await broker.end_once(4, (1, 0)))[0] is NO_MAPPING
    assert await broker.end_once(5, (1, 0)) == (NO_MAPPING, -1, -1)
    offsets = {"transactional_id": broker.name, "producer_id": 1, "producer_epoch": 0, "group_id": "g"}
    assert (await broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **offsets)).error_code is NO_MAPPING
    assert (await broker.described()).error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_partitions(broker: Broker) -> None:
    pair = await broker.begin()
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    for version in (0, 3, 4, 5):
        assert await broker.add(version, pair, broker.here, (broker.name, 9), ("gone", 0)) == [
            skipped,
            unknown,
            unknown,
        ]
    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await broker.add(3, pair, ("__transaction_state", 0)) == [forbidden]
    assert (await broker.described()).transaction_state == "Empty"
    assert await broker.add(3, pair, broker.here, broker.there) == [NONE, NONE]
    before = await broker.described()
    assert await broker.add(3, pair, broker.there) == [NONE]
    after = await broker.described()
    assert after.transaction_start_time == before.transaction_start_time
    assert [(one.topic, sorted(one.partitions)) for one in after.topics] == [(broker.name, [0, 1])]


async def test_verification(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.add(4, pair, broker.here, verify_only=True) == [ABORTABLE]
    assert await broker.add(3, pair, broker.here) == [NONE]
    assert await broker.add(4, pair, broker.here, broker.there, verify_only=True) == [NONE, ABORTABLE]
    assert await broker.add(4, (pair[0], pair[1] + 1), broker.here, verify_only=True) == [FENCED]
    assert (await broker.end(4, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert await broker.add(4, pair, broker.here, verify_only=True) == [ABORTABLE]


async def test_ends_of_version_1(broker: Broker) -> None:
    pair = await broker.begin()
    assert (await broker.end_once(4, pair))[0] is BAD_STATE
    assert await broker.add(3, pair, broker.here) == [NONE]
    for epoch in (pair[1] + 1, pair[1] - 1):
        assert (await broker.end_once(4, (pair[0], epoch)))[0] is FENCED
        assert (await broker.end_once(5, (pair[0], epoch)))[0] is FENCED
    assert (await broker.end_once(4, (pair[0] + 999, pair[1])))[0] is NO_MAPPING
    for _ in range(2):
        assert (await broker.end(4, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert (await broker.end(4, pair, commit=False))[0] is BAD_STATE


async def test_ends_of_version_2(broker: Broker) -> None:
    producer_id, epoch = await broker.begin()
    assert await broker.end_once(5, (producer_id, epoch)) == (BAD_STATE, -1, -1)
    assert await broker.end(5, (producer_id, epoch), commit=False) == (NONE, producer_id, epoch + 1)
    await broker.in_state("CompleteAbort")
    pair = (producer_id, epoch + 1)
    assert await broker.add(4, pair, broker.here) == [NONE]
    assert await broker.produce(12, pair, broker.here, 0) is NONE
    for _ in range(2):
        assert await broker.end(5, pair) == (NONE, producer_id, epoch + 2)
    await broker.in_state("CompleteCommit")
    assert (await broker.end(5, pair, commit=False))[0] is BAD_STATE
    assert await broker.end(5, (producer_id, epoch + 2), commit=False) == (NONE, producer_id, epoch + 3)
    await broker.in_state("CompleteAbort")
    assert (await broker.end(5, (producer_id, epoch + 3)))[0] is BAD_STATE


async def test_a_transaction_that_times_out(broker: Broker) -> None:
    code, producer_id, epoch = await broker.init(transaction_timeout_ms=500)
    assert code is NONE
    pair = (producer_id, epoch)
    assert await broker.produce(12, pair, broker.here, 0) is NONE
    await broker.in_state("CompleteAbort")
    assert await broker.produce(12, pair, broker.here, 1) is OLD_EPOCH
    assert (await broker.end_once(4, pair))[0] is FENCED
    assert (await broker.end_once(5, pair))[0] is BAD_STATE
    assert await broker.end_once(5, pair, commit=False) == (NONE, producer_id, epoch + 1)


async def test_a_partition_that_was_not_added(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.produce(10, pair, broker.here, 0) is BAD_STATE
    assert await broker.produce(11, pair, broker.here, 0) is ABORTABLE
    assert await broker.produce(12, pair, broker.here, 0) is NONE
    assert await broker.produce(12, pair, broker.here, 1) is NONE
    assert [(one.topic, one.partitions) for one in (await broker.described()).topics] == [(broker.name, (0,))]
    assert await broker.produce(12, (pair[0], pair[1] + 1), broker.there, 0) is OLD_EPOCH, "the coordinator fences it"
    assert await broker.init_once() == (BUSY, -1, -1)
    assert (await broker.init())[0] is NONE
    assert await broker.produce(12, pair, broker.here, 2) is OLD_EPOCH


async def test_sequences_of_version_2(broker: Broker) -> None:
    pair = await broker.begin()
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await broker.produce(12, pair, broker.here, 5) is gap
    assert await broker.produce(12, pair, broker.here, 0) is NONE
    assert await broker.end(5, pair) == (NONE, pair[0], pair[1] + 1)
    await broker.in_state("CompleteCommit")
    after = (pair[0], pair[1] + 1)
    assert await broker.produce(12, after, broker.here, 3) is gap
    assert await broker.produce(12, after, broker.here, 0) is NONE
    assert await broker.produce(12, after, broker.here, 0) is NONE, "49: the same batch again"
    assert await broker.stable_offset(broker.here) == 2


async def test_sequences_of_version_1(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.add(3, pair, broker.here) == [NONE]
    assert await broker.produce(11, pair, broker.here, 5) is NONE
    assert (await broker.end(4, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert await broker.add(3, pair, broker.here) == [NONE]
    assert await broker.produce(11, pair, broker.here, 6) is NONE
    assert (await broker.end(4, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert await broker.add(3, pair, broker.here) == [NONE]
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await broker.produce(11, pair, broker.here, 0) is gap
    assert await broker.produce(11, pair, broker.here, 7) is gap, "43: sequence 0 was verified and is still to come"


async def test_batches_that_do_not_belong_there(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.add(3, pair, broker.here) == [NONE]
    assert await broker.produce(11, pair, broker.here, 0) is NONE
    plain = await broker.produce(11, pair, broker.here, 1, transactional=False)
    assert plain is BAD_STATE
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await broker.produce(11, pair, broker.here, 1, transactional_id=None) is refused


@pytest.mark.parametrize("commits", [True, False])
async def test_offsets_in_a_transaction(broker: Broker, commits: bool) -> None:
    await broker.group_is_ready()
    pair = await broker.begin()
    assert await broker.commit_offsets(3, pair, 7) is BAD_STATE, "69"
    assert await broker.commit_offsets(4, pair, 7) is ABORTABLE
    assert await broker.offset() == (NONE, -1)
    assert await broker.commit_offsets(5, pair, 7) is NONE
    assert await broker.offset() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert await broker.offset(stable=False) == (NONE, -1)
    [topic] = (await broker.described()).topics
    assert topic.topic == "__consumer_offsets"
    assert (await broker.end(5, pair, commit=commits))[0] is NONE
    await broker.in_state("CompleteCommit" if commits else "CompleteAbort")
    assert await broker.offset() == (NONE, 7 if commits else -1)


async def test_markers(broker: Broker, unverified: None) -> None:
    pair = (777_777, 5)
    assert await broker.mark(pair, broker.here, epoch=3) == [NONE], "of an unknown producer"
    assert await broker.mark(pair, broker.here, epoch=3, version=1) == [NONE]
    assert await broker.mark(pair, broker.here, epoch=3, level=2) == [NONE], "equal, and none is open"
    assert await broker.mark((pair[0], 4), broker.here, epoch=3) == [OLD_EPOCH]
    assert await broker.mark((pair[0], 4), broker.here, epoch=3, level=2) == [OLD_EPOCH]
    assert await broker.mark(pair, broker.here, epoch=2) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert await broker.produce(9, pair, broker.here, 0) is NONE
    assert await broker.mark(pair, broker.here, epoch=3, level=2) == [OLD_EPOCH], "equal, and one is open"
    assert await broker.stable_offset(broker.here) == 5
    assert await broker.mark(pair, broker.here, epoch=3, commit=True) == [NONE]
    assert await broker.stable_offset(broker.here) == 7
    [found] = [one for one in await broker.producers(broker.here) if one.producer_id == pair[0]]
    assert (found.producer_id, found.producer_epoch, found.coordinator_epoch) == (*pair, 3)
    assert found.current_txn_start_offset == -1


async def test_a_partition_that_is_not_here(broker: Broker) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    places = (broker.here, (broker.name, 9), ("gone", 0))
    assert await broker.mark((888_888, 0), *places) == [NONE, unknown, unknown]
    assert (await broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[])).markers == ()


async def test_lists(broker: Broker) -> None:
    await broker.begin()
    producer_id, epoch = await broker.begin()
    assert await broker.add(3, (producer_id, epoch), broker.here) == [NONE]

    async def listed(version: int = 2, **filters: Any) -> tuple[ErrorCode, list[str], tuple[str, ...]]:
        found = await broker.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)
        states = [one.transaction_state for one in found.transaction_states if one.transactional_id == broker.name]
        return found.error_code, states, found.unknown_state_filters

    assert await listed(0) == (NONE, ["Ongoing"], ())
    assert await listed(state_filters=["Ongoing", "X"]) == (NONE, ["Ongoing"], ("X",))
    assert await listed(state_filters=["X"]) == (NONE, [], ("X",))
    assert await listed(state_filters=["ongoing"]) == (NONE, [], ("ongoing",))
    assert await listed(state_filters=["Empty"]) == (NONE, [], ())
    assert await listed(producer_id_filters=[producer_id]) == (NONE, ["Ongoing"], ())
    assert await listed(duration_filter=3_600_000) == (NONE, [], ())
    assert await listed(transactional_id_pattern=f"{broker.name}") == (NONE, ["Ongoing"], ())
    assert await listed(transactional_id_pattern=f"{broker.name[:5]}") == (NONE, [], ())
    assert await listed(transactional_id_pattern="") == (NONE, ["Ongoing"], ())
    assert await listed(transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], ())


async def test_a_hanging_transaction_is_aborted(broker: Broker, unverified: None) -> None:
    assert await broker.produce(9, (999_999, 0), broker.there, 0) is NONE
    assert await broker.stable_offset(broker.there) == 0
    [found] = await broker.producers(broker.there)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (0, -1)
    at = ("--bootstrap-server", broker.bootstrap)
    place = ("--topic", broker.name, "--partition", "1")
    await asyncio.to_thread(tool, "transactions", *at, "abort", *place, "--start-offset", "0")
    assert await broker.stable_offset(broker.there) == 2
    [found] = await broker.producers(broker.there)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)


async def test_an_admin_ends_the_transaction_of_an_id(broker: Broker) -> None:
    pair = await broker.begin()
    assert await broker.add(3, pair, broker.here) == [NONE]
    at = ("--bootstrap-server", broker.bootstrap)
    await asyncio.to_thread(tool, "transactions", *at, "forceTerminateTransaction", "--transactionalId", broker.name)
    found = await broker.described()
    assert (found.producer_id, found.producer_epoch, found.transaction_state) == (pair[0], pair[1] + 2, "Empty")
    assert (await broker.end_once(4, pair))[0] is FENCED
