"""The transaction APIs request by request: Apache Kafka 4.3.1 and klamm give the same responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.interop.apache_kafka import tool
from tests.interop.transaction_peer import (
    ABORTABLE,
    BAD_STATE,
    BUSY,
    FENCED,
    NO_MAPPING,
    NONE,
    OLD_EPOCH,
    SYSTEMS,
    Broker,
    connected,
    running,
    without_verification,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=SYSTEMS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("transactions")) as address:
        yield address


@pytest.fixture
async def broker(bootstrap: str, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with connected(bootstrap, request.node.name) as made:
        yield made


@pytest.fixture
async def unverified(broker: Broker) -> AsyncIterator[None]:
    async with without_verification(broker):
        yield


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
