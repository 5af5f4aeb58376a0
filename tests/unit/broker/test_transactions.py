"""The transaction APIs in all versions, with the real coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.request_contexts import request_context
from tests.support.waiting import until
from tests.unit.coordinator.memory_log import MemoryLog

from klamm.broker.authorization import AllowAll
from klamm.broker.handlers.producer_ids import ProducerIdHandlers
from klamm.broker.handlers.transactions import TransactionHandlers
from klamm.broker.producer_ids import Block, ProducerIds
from klamm.broker.request import Handler, InlineHandler
from klamm.coordinator.transactions.config import TransactionConfig
from klamm.coordinator.transactions.driver import TransactionCoordinator
from klamm.node.requests.dispatch import Dispatcher
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

ID = "orders"
NONE = ErrorCode.NONE
PARTITIONS = frozenset({("t", 0), ("t", 1), ("u", 0), ("__consumer_offsets", 3)})
MARKERS_LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Broker:
    """Handlers by API key. Markers are written to all partitions immediately, unless `holds_markers`."""

    is_request_time_limited = is_measuring_requests = False

    def __init__(self) -> None:
        async def allocate() -> Block:
            return Block(1000, 2000)

        self.producer_ids = ProducerIds(allocate)
        self.holds_markers = False
        self.written: list[Marker] = []
        self.answers: dict[int, bytes | None] = {}
        self.log = MemoryLog()
        self.coordinator = TransactionCoordinator(
            TransactionConfig(),
            self.log,
            1,
            take_producer_id=self.producer_ids.take_now,
            transaction_version=lambda: 2,
            leader_of=lambda place: 1 if place in PARTITIONS else None,
            send_markers=self._send_markers,
        )
        ids = ProducerIdHandlers(self.producer_ids, lambda: self.coordinator)
        others = TransactionHandlers(
            self.coordinator,
            lambda topic, partition: (topic, partition) in PARTITIONS,
            lambda group: ("__consumer_offsets", len(group)),
            self._write_markers,
        )
        self.handlers: dict[int, Handler | InlineHandler] = {
            ApiKey.INIT_PRODUCER_ID: ids.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: InlineHandler(others.add_partitions_to_txn),
            ApiKey.ADD_OFFSETS_TO_TXN: InlineHandler(others.add_offsets_to_txn),
            ApiKey.END_TXN: InlineHandler(others.end_txn),
            ApiKey.WRITE_TXN_MARKERS: InlineHandler(others.write_txn_markers),
            ApiKey.DESCRIBE_TRANSACTIONS: others.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: others.list_transactions,
        }

    def _send_markers(
        self, broker: int, markers: Sequence[Marker], answer: Callable[[MarkerErrors | None], None]
    ) -> None:
        code = MARKERS_LOST if self.holds_markers else NONE
        answer({marker.producer_id: dict.fromkeys(marker.places, code) for marker in markers})

    def _write_markers(self, markers: Sequence[Marker], answer: Callable[[MarkerErrors], None]) -> None:
        self.written += markers
        answer({marker.producer_id: dict.fromkeys(marker.places, NONE) for marker in markers})

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        dispatcher = Dispatcher(self, self, AllowAll())
        body = encode(build(request_class(api_key, version), **fields))
        dispatcher.dispatch(1, request_context(api_key, version), body)
        await dispatcher.drain(30)
        answer = self.answers.pop(1)
        assert answer is not None, "the connection is closed"
        return decode_response(api_key, version, answer)

    def find(self, api_key: int, *, on_controller: bool) -> Handler | InlineHandler:
        return self.handlers[api_key]

    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        self.answers |= dict(answers)

    async def init(self, version: int = 5, **fields: Any) -> tuple[ErrorCode, int, int]:
        asked = {"transactional_id": ID, "transaction_timeout_ms": 60_000} | fields
        found = await self.ask(ApiKey.INIT_PRODUCER_ID, version, **asked)
        return found.error_code, found.producer_id, found.producer_epoch

    async def add(self, version: int, pair: tuple[int, int], *places: Place, **fields: Any) -> dict[Place, ErrorCode]:
        topics = [{"name": topic, "partitions": [partition]} for topic, partition in places]
        names = ("transactional_id", "producer_id", "producer_epoch", "topics")
        values = dict(zip(names, (ID, *pair, topics), strict=True))
        if version < 4:
            asked: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in values.items()}
        else:
            asked = {"transactions": [values | fields]}
        found = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **asked)
        results = found.results_by_topic_v3_and_below if version < 4 else found.results_by_transaction[0].topic_results
        return {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in results
            for one in topic.results_by_partition
        }

    async def end(self, version: int, pair: tuple[int, int], *, commit: bool = True) -> ErrorCode:
        found = await self.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=ID,
            producer_id=pair[0],
            producer_epoch=pair[1],
            committed=commit,
        )
        code: ErrorCode = found.error_code
        return code

    def state(self) -> str:
        return self.coordinator.describe(ID).transaction_state


@pytest.fixture
async def broker() -> Broker:
    made = Broker()
    made.coordinator.on_elected(0, 1)
    await made.coordinator.loaded()
    return made


@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_in_each_version(broker: Broker, version: int) -> None:
    assert await broker.init(version) == (NONE, 1000, 0)
    assert await broker.add(version, (1000, 0), ("t", 0), ("u", 0)) == {("t", 0): NONE, ("u", 0): NONE}
    assert await broker.end(version, (1000, 0)) is NONE
    await until(lambda: broker.state() == "CompleteCommit")
    # 17, 19: a repeated request
    assert await broker.end(version, (1000, 0)) is NONE
    assert await broker.end(version, (1000, 0), commit=False) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", range(5))
async def test_offsets_are_added_to_a_transaction(broker: Broker, version: int) -> None:
    await broker.init()
    asked = {"transactional_id": ID, "producer_id": 1000, "producer_epoch": 0, "group_id": "abc"}
    assert (await broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **asked)).error_code is NONE
    [topic] = broker.coordinator.describe(ID).topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", (3,))
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    answer = await broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **asked | {"producer_epoch": 7})
    assert answer.error_code is fenced


@pytest.mark.parametrize("version", range(6))
async def test_the_error_of_a_fenced_producer_depends_on_the_version(broker: Broker, version: int) -> None:
    await broker.init()
    await broker.add(0, (1000, 0), ("t", 0))
    newer = version >= 2
    fenced = ErrorCode.PRODUCER_FENCED if newer else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await broker.add(version, (1000, 5), ("t", 0)) == {("t", 0): fenced}
    assert await broker.end(version, (1000, 1)) is fenced, "22"
    assert await broker.end(version, (999, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if version >= 3:
        pair = {"producer_id": 999, "producer_epoch": 0}
        expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await broker.init(version, **pair) == (expected, -1, -1), "3"


async def test_bad_and_plain_producers(broker: Broker) -> None:
    refused = (ErrorCode.INVALID_REQUEST, -1, -1)
    assert await broker.init(producer_id=7) == refused
    assert await broker.init(producer_epoch=7) == refused
    assert await broker.init(transactional_id="") == refused
    assert await broker.init(transactional_id=None, producer_id=7) == refused
    for timeout_ms in (0, 900_001):
        assert (await broker.init(transaction_timeout_ms=timeout_ms))[0] is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await broker.init(transactional_id=None, transaction_timeout_ms=0) == (NONE, 1000, 0)


async def test_two_phase_commit_is_off(broker: Broker) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await broker.init(6, enable2_pc=True))[0] is refused
    assert (await broker.init(6, keep_prepared_txn=True))[0] is ErrorCode.UNSUPPORTED_VERSION
    assert await broker.init(6) == (NONE, 1000, 0)


async def test_unknown_ids(broker: Broker) -> None:
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await broker.add(3, (1, 0), ("t", 0)) == {("t", 0): unknown}
    assert await broker.end(4, (1, 0)) is unknown
    answer = await broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID, ""])
    assert [one.error_code for one in answer.transaction_states] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("version", [3, 5])
async def test_no_partition_is_added_if_one_is_unknown(broker: Broker, version: int) -> None:
    await broker.init()
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    found = await broker.add(version, (1000, 0), ("t", 0), ("t", 9), ("gone", 0))
    assert found == {("t", 0): skipped, ("t", 9): unknown, ("gone", 0): unknown}
    offsets = ("__consumer_offsets", 3)
    of_internal = {offsets: ErrorCode.TOPIC_AUTHORIZATION_FAILED if version < 4 else NONE}
    assert broker.state() == "Empty"
    assert await broker.add(version, (1000, 0), offsets) == of_internal


async def test_verification(broker: Broker) -> None:
    await broker.init()
    await broker.add(3, (1000, 0), ("t", 0))
    verify = {"verify_only": True}
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert await broker.add(4, (1000, 0), ("t", 0), ("t", 1), **verify) == {("t", 0): NONE, ("t", 1): abortable}
    transactions = [
        {"transactional_id": name, "producer_id": 1000, "producer_epoch": 0, "topics": topics}
        for name in (ID, "unknown")
        for topics in ([{"name": "u", "partitions": [0]}],)
    ]
    answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=transactions)
    assert answer.error_code is NONE
    codes = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    }
    assert codes == {ID: NONE, "unknown": ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_repeated_partition_has_repeated_results(broker: Broker, version: int) -> None:
    await broker.init()
    asked = {
        "transactional_id": ID,
        "producer_id": 1000,
        "producer_epoch": 0,
        "topics": [{"name": "t", "partitions": [0, 0]}, {"name": "t", "partitions": [0]}],
    }
    if version < 4:
        asked = {f"v3_and_below_{name}": value for name, value in asked.items()}
    else:
        asked = {"transactions": [asked]}
    answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **asked)
    found = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
    results = [(topic.name, one.partition_index) for topic in found for one in topic.results_by_partition]
    assert results == [("t", 0)] * 3


async def test_an_end_in_version_5(broker: Broker) -> None:
    await broker.init()
    assert await broker.end(4, (1000, 0)) is ErrorCode.INVALID_TXN_STATE
    assert await broker.end(5, (1000, 0)) is ErrorCode.INVALID_TXN_STATE
    broker.holds_markers = True
    await broker.add(4, (1000, 0), ("t", 0))
    end = {"transactional_id": ID, "producer_id": 1000, "producer_epoch": 0, "committed": True}
    answer = await broker.ask(ApiKey.END_TXN, 5, **end)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, 1000, 1)
    answer = await broker.ask(ApiKey.END_TXN, 5, **end)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (busy, -1, -1)
    # 14: partitions are added and verified meanwhile
    assert await broker.add(3, (1000, 1), ("t", 0)) == {("t", 0): busy}
    assert await broker.add(4, (1000, 1), ("t", 0), verify_only=True) == {("t", 0): busy}
    broker.holds_markers = False
    await until(lambda: broker.state() == "CompleteCommit")
    answer = await broker.ask(ApiKey.END_TXN, 5, **end)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, 1000, 1)


@pytest.mark.parametrize("version", [1, 2])
async def test_markers_of_another_coordinator(broker: Broker, version: int) -> None:
    topics = [{"name": "t", "partition_indexes": [0, 1]}, {"name": "u", "partition_indexes": [0]}]
    places = (("t", 0), ("t", 1), ("u", 0))
    marker = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": True,
        "topics": topics,
        "coordinator_epoch": 9,
        "transaction_version": 2,
    }
    answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
    # 37: version 1 does not contain the transaction version
    assert broker.written == [Marker(7, 3, True, 9, 2 if version == 2 else 0, places)]
    [found] = answer.markers
    assert found.producer_id == 7
    codes = {(topic.name, one.partition_index): one.error_code for topic in found.topics for one in topic.partitions}
    assert codes == dict.fromkeys(places, NONE)
    # 35
    assert (await broker.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[])).markers == ()


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch", "transaction_version"])
async def test_markers_of_no_producer_are_not_written(broker: Broker, field: str) -> None:
    good = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 2,
    }
    markers = [good | {"producer_id": 8}, good | {field: -1}]
    found = await broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=markers)
    codes = {one.producer_id: one.topics[0].partitions[0].error_code for one in found.markers}
    refused = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes == {8: refused, markers[1]["producer_id"]: refused}
    assert not broker.written
    await broker.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[good])
    assert [one.producer_id for one in broker.written] == [7]


async def test_lists(broker: Broker) -> None:
    for name in ("t", "t1"):
        await broker.init(transactional_id=name)
    await broker.init()
    await broker.add(3, (1002, 0), ("t", 0))

    async def listed(version: int = 2, **filters: Any) -> tuple[ErrorCode, dict[str, str], tuple[str, ...]]:
        answer = await broker.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)
        states = {one.transactional_id: one.transaction_state for one in answer.transaction_states}
        return answer.error_code, states, answer.unknown_state_filters

    everything = {"t": "Empty", "t1": "Empty", ID: "Ongoing"}
    for version in range(3):
        assert await listed(version) == (NONE, everything, ())
        assert await listed(version, state_filters=["Ongoing", "X"]) == (NONE, {ID: "Ongoing"}, ("X",))
        assert await listed(version, producer_id_filters=[1001]) == (NONE, {"t1": "Empty"}, ())
    assert await listed(duration_filter=100_000) == (NONE, {"t": "Empty", "t1": "Empty"}, ()), "start -1 passes"
    assert await listed(transactional_id_pattern="t") == (NONE, {"t": "Empty"}, ())
    assert await listed(transactional_id_pattern="") == (NONE, everything, ())
    assert await listed(transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, {}, ())


async def test_descriptions(broker: Broker) -> None:
    await broker.init()
    await broker.add(3, (1000, 0), ("t", 1), ("t", 0), ("u", 0))
    [found] = (await broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])).transaction_states
    assert (found.error_code, found.transactional_id, found.transaction_state) == (NONE, ID, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (1000, 0)
    assert found.transaction_timeout.total_seconds() == 60
    assert [(one.topic, one.partitions) for one in found.topics] == [("t", (0, 1)), ("u", (0,))]


async def test_partitions_that_load_or_are_led_elsewhere(broker: Broker) -> None:
    await broker.init()
    broker.log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.coordinator.on_elected(0, 2)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await broker.init())[0] is loading
    assert await broker.add(3, (1000, 0), ("t", 0)) == {("t", 0): loading}
    assert await broker.end(4, (1000, 0)) is loading
    assert (await broker.ask(ApiKey.LIST_TRANSACTIONS, 2)).error_code is loading
    broker.coordinator.on_resigned(0)
    elsewhere = ErrorCode.NOT_COORDINATOR
    assert (await broker.init())[0] is elsewhere
    assert await broker.add(4, (1000, 0), ("t", 0), verify_only=True) == {("t", 0): elsewhere}
    assert await broker.end(5, (1000, 0)) is elsewhere
    assert (await broker.ask(ApiKey.LIST_TRANSACTIONS, 2)).transaction_states == ()
