"""Partitions of transactions, request by request: Apache Kafka 4.3.1 and klamm give the same responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from klamm.coordinator.runtime.placement import partition_of
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.interop.transaction_peer import (
    ABORTABLE,
    BAD_STATE,
    CONFIG,
    FENCED,
    NONE,
    OLD_EPOCH,
    SYSTEMS,
    Broker,
    Place,
    connected,
    patiently,
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


async def fetched(broker: Broker, place: Place, offset: int, *, committed: bool = True) -> Any:
    """The response of a fetch that does not wait."""
    partition = {"partition": place[1], "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topic = {"topic": place[0], "partitions": [partition]}
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": int(committed)}
    found = await broker.ask(ApiKey.FETCH, 12, replica_id=-1, topics=[topic], **fields)
    return found.responses[0].partitions[0]


async def offset_of(broker: Broker, place: Place, timestamp: int, *, committed: bool = True) -> tuple[int, int]:
    """The offset and timestamp that ListOffsets returns."""
    topic = {"name": place[0], "partitions": [{"partition_index": place[1], "timestamp": timestamp}]}
    found = await broker.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=int(committed), topics=[topic])
    [partition] = found.topics[0].partitions
    assert partition.error_code is NONE
    return partition.offset, partition.timestamp


@pytest.mark.parametrize("level", [0, 2])
async def test_a_late_marker_of_offsets(broker: Broker, level: int) -> None:
    """Its epoch is that of the marker before in version 2, and that of the open transaction in version 1."""
    await broker.group_is_ready()
    producer_id, epoch = await broker.begin()
    assert await broker.commit_offsets(5, (producer_id, epoch), 7) is NONE
    assert await broker.offset() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    place = "__consumer_offsets", partition_of(broker.name, int(CONFIG["offsets.topic.num.partitions"]))
    answered = await broker.mark((producer_id, epoch), place, commit=True, level=level)
    assert answered == [OLD_EPOCH if level == 2 else NONE]
    assert await broker.offset() == ((ErrorCode.UNSTABLE_OFFSET_COMMIT, -1) if level == 2 else (NONE, 7))


@pytest.mark.parametrize("version", [10, 11, 12])
async def test_a_batch_that_is_sent_again(broker: Broker, version: int) -> None:
    pair = await broker.begin()
    if version < 12:
        assert await broker.add(3, pair, broker.here) == [NONE]
    for _ in range(2):
        assert await broker.produce(version, pair, broker.here, 0) is NONE
    assert await broker.stable_offset(broker.here) == 0
    assert (await broker.end(5 if version == 12 else 4, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert await broker.stable_offset(broker.here) == 2, "a record and a marker"
    expected = {10: BAD_STATE, 11: ABORTABLE, 12: OLD_EPOCH}
    assert await broker.produce(version, pair, broker.here, 0) is expected[version]


async def test_without_verification_version_12_still_adds(broker: Broker) -> None:
    pair = await broker.begin()
    async with without_verification(broker):
        assert await broker.produce(11, pair, broker.here, 0) is NONE
        assert (await broker.described()).topics == ()
        assert await broker.mark(pair, broker.here) == [NONE]
        assert await broker.produce(12, pair, broker.there, 0) is NONE
        [topic] = (await broker.described()).topics
        assert (topic.topic, topic.partitions) == (broker.name, (1,))


async def test_overlapping_transactions(broker: Broker) -> None:
    """Two are aborted and one is open."""
    first = await broker.begin()
    others = []
    for at in range(2):
        code, *pair = await broker.init(transactional_id=f"{broker.name}-{at}")
        assert code is NONE
        others.append((pair[0], pair[1]))
    second, third = others
    ids = [broker.name, f"{broker.name}-0", f"{broker.name}-1"]
    for name, pair in zip(ids, (first, second, third), strict=True):
        assert await broker.produce(12, pair, broker.here, 0, transactional_id=name) is NONE
    for name, (producer_id, epoch) in zip(ids[:2], (first, second), strict=True):
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "committed": False}
        assert (await broker.ask(ApiKey.END_TXN, 5, transactional_id=name, **fields)).error_code is NONE

    async def markers() -> int:
        return (await offset_of(broker, broker.here, -1, committed=False))[0]

    assert await patiently(markers, lambda end: end == 5) == 5
    assert await broker.stable_offset(broker.here) == 2, "the third one is open"
    found = await fetched(broker, broker.here, 0)
    aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
    assert sorted(aborted, key=lambda one: one[1]) == [(first[0], 0), (second[0], 1)]
    assert (found.last_stable_offset, found.high_watermark) == (2, 5)
    assert (await fetched(broker, broker.here, 0, committed=False)).aborted_transactions is None
    assert (await fetched(broker, broker.here, 2)).aborted_transactions == ()
    assert await offset_of(broker, broker.here, 0) == (0, 1000)
    assert await offset_of(broker, broker.here, 1001) == (-1, -1), "markers have later times, and are undecided"
    assert (await offset_of(broker, broker.here, 1001, committed=False))[0] == 3
    assert await offset_of(broker, broker.here, -3) == (-1, -1), "the largest timestamp is that of a marker"


async def test_records_are_deleted_into_an_open_transaction(broker: Broker) -> None:
    pair = await broker.begin()
    for sequence in range(3):
        assert await broker.produce(12, pair, broker.here, sequence) is NONE
    partition = {"partition_index": 0, "offset": 2}
    topic = {"name": broker.name, "partitions": [partition]}
    found = await broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[topic], timeout_ms=30_000)
    assert found.topics[0].partitions[0].low_watermark == 2
    assert await broker.stable_offset(broker.here) == 2
    assert (await broker.end(5, pair))[0] is NONE
    await broker.in_state("CompleteCommit")
    assert await broker.stable_offset(broker.here) == 4


async def test_batches_of_a_connection_keep_their_order(broker: Broker) -> None:
    pair = await broker.begin()
    codes = await asyncio.gather(*(broker.produce(12, pair, broker.here, sequence) for sequence in range(3)))
    assert codes == [NONE] * 3
    other = (pair[0], pair[1] - 1)
    assert await broker.produce(12, other, broker.there, 0) in (FENCED, OLD_EPOCH)
