"""Transactional offsets, the same requests to Apache Kafka 4.3.1 and to klamm."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.protocol.messages.group_messages import (
    CommitPartition,
    CommitTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeletePartition,
    DeleteTopic,
    FetchGroup,
    FetchTopic,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnCommitTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from klamm.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.interop.apache_kafka import KafkaNode, running
from tests.interop.group_peers import Peer
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PASSING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
WITHIN_S = 60
NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
TV1, TV2 = 4, 5
"""The version of TxnOffsetCommit and of EndTxn."""

pytestmark = pytest.mark.timeout(300)
NUMBERS = itertools.count()


class Broker:
    """One of the two brokers."""

    def __init__(self, bootstrap: str) -> None:
        self._peer = Peer(bootstrap)

    def ask(self, request: Any, response: Any, version: int) -> Any:
        self._peer.send("", request, version)
        return self._peer.receive("", response, version)

    def until(self, ask: Callable[[], ErrorCode]) -> None:
        """Retry what a client retries."""
        end = time.monotonic() + WITHIN_S
        while (code := ask()) in PASSING and time.monotonic() < end:
            time.sleep(0.02)
        assert code is NONE

    def prepare(self, group: str, transactional_id: str) -> None:
        """Create the topic and the coordinators' topics."""
        self.ask(CreateTopicsRequest((CreatableTopic("orders", 3, 1),)), CreateTopicsResponse, 7)
        for kind, key in enumerate((group, transactional_id)):
            self.until(partial(self._find, kind, key))
        self.until(lambda: self.fetch(group)[1])

    def _find(self, kind: int, key: str) -> ErrorCode:
        (found,) = self.ask(FindCoordinatorRequest("", kind, (key,)), FindCoordinatorResponse, 6).coordinators
        return ErrorCode(found.error_code)

    def commit(self, group: str, offset: int) -> ErrorCode:
        commits = (CommitTopic("orders", partitions=(CommitPartition(0, offset),)),)
        answer = self.ask(OffsetCommitRequest(group, commits), OffsetCommitResponse, 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetch(self, group: str, *, stable: bool = True) -> tuple[int, ErrorCode]:
        asked = FetchGroup(group, (FetchTopic("orders", bytes(16), (0,)),))
        (found,) = self.ask(OffsetFetchRequest((asked,), require_stable=stable), OffsetFetchResponse, 9).groups
        if found.error_code:
            return -1, ErrorCode(found.error_code)
        (one,) = found.topics[0].partitions
        return one.committed_offset, ErrorCode(one.error_code)

    def loaded(self, group: str) -> tuple[int, ErrorCode]:
        """The same committed offsets after a restart of the broker, which has to load the group."""
        end = time.monotonic() + WITHIN_S
        while (found := self.fetch(group))[1] in PASSING and time.monotonic() < end:
            time.sleep(0.02)
        return found

    def listed(self, group: str) -> list[str]:
        """The topics in the response to a fetch of all offsets."""
        request = OffsetFetchRequest((FetchGroup(group, None),), require_stable=True)
        (found,) = self.ask(request, OffsetFetchResponse, 9).groups
        return [topic.name for topic in found.topics]


class Producer:
    """A transactional producer of a group's offsets."""

    def __init__(self, broker: Broker, group: str, name: str = "", *, timeout_ms: int = 60_000) -> None:
        self.broker, self.group = broker, group
        self.id = f"{group}-{name}"
        broker.prepare(group, self.id)

        def begun() -> ErrorCode:
            answer = broker.ask(InitProducerIdRequest(self.id, timeout_ms), InitProducerIdResponse, 5)
            self.pair = answer.producer_id, answer.producer_epoch
            return ErrorCode(answer.error_code)

        broker.until(begun)

    def add_offsets(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.id, *self.pair, self.group)
        return ErrorCode(self.broker.ask(request, AddOffsetsToTxnResponse, 4).error_code)

    def commit(self, *offsets: int, version: int = TV2, metadata: str = "", **fields: Any) -> list[ErrorCode]:
        """The code of each partition, from 0 on."""
        partitions = tuple(CommitPartition(index, offset, -1, metadata) for index, offset in enumerate(offsets))
        topics = (TxnCommitTopic("orders", partitions),)
        request = TxnOffsetCommitRequest(self.id, self.group, *self.pair, topics, **fields)
        answer = self.broker.ask(request, TxnOffsetCommitResponse, version)
        found = {one.partition_index: ErrorCode(one.error_code) for topic in answer.topics for one in topic.partitions}
        return [found[index] for index in range(len(offsets))]

    def commit_now(self, *offsets: int, **fields: Any) -> None:
        """Commit with retries like a client, while the previous transaction is being ended."""

        def ask() -> ErrorCode:
            return next((code for code in self.commit(*offsets, **fields) if code is not NONE), NONE)

        self.broker.until(ask)

    def end(self, *, commits: bool, version: int = TV2) -> None:
        """End the transaction; returns once its markers are written."""

        def ask() -> ErrorCode:
            answer = self.broker.ask(EndTxnRequest(self.id, *self.pair, commits), EndTxnResponse, version)
            if version == TV2 and not answer.error_code:
                self.pair = answer.producer_id, answer.producer_epoch
            return ErrorCode(answer.error_code)

        self.broker.until(ask)
        wait_until(lambda: self.state()[0].startswith("Complete"), bound_s=WITHIN_S)

    def state(self) -> tuple[str, list[str]]:
        """The state of the id, and the topics of its transaction."""
        request = DescribeTransactionsRequest((self.id,))
        (found,) = self.broker.ask(request, DescribeTransactionsResponse, 0).transaction_states
        return found.transaction_state, [topic.topic for topic in found.topics]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    require("java", "mvn")
    folder = tmp_path_factory.mktemp("transactions")
    with (
        running(folder / "kafka", "4L6g3nShT-eMCtK--X86sw", SETTINGS) as kafka,
        NodeProcess(folder / "klamm", overrides=SETTINGS) as klamm,
    ):
        yield {"kafka": kafka.bootstrap, "klamm": klamm.bootstrap}


@pytest.fixture(params=["kafka", "klamm"])
def broker(request: pytest.FixtureRequest, addresses: dict[str, str]) -> Broker:
    return Broker(addresses[request.param])


@pytest.fixture
def group() -> str:
    return f"group-{next(NUMBERS)}"


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_pending_offset_is_unstable(broker: Broker, group: str, version: int, commits: bool) -> None:
    producer = Producer(broker, group)
    assert broker.commit(group, 1) is NONE
    if version == TV1:
        assert producer.add_offsets() is NONE
    producer.commit_now(5, version=version)
    assert broker.fetch(group) == (-1, UNSTABLE)
    assert broker.fetch(group, stable=False) == (1, NONE)
    producer.end(commits=commits, version=version)
    assert broker.fetch(group) == (5 if commits else 1, NONE)


def test_a_partition_that_is_only_pending_is_not_listed(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    producer.commit_now(5)
    assert broker.listed(group) == []
    producer.end(commits=True)
    assert broker.listed(group) == ["orders"]


def test_a_plain_commit_during_a_transaction_stays(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    producer.commit_now(5)
    assert broker.commit(group, 2) is NONE
    assert broker.fetch(group) == (-1, UNSTABLE)
    producer.end(commits=True)
    assert broker.fetch(group) == (2, NONE)


def test_the_member_is_checked(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    join = JoinGroupRequest(group, 30_000, "", "consumer", (JoinProtocol("range", b""),), 30_000)
    member = broker.ask(join, JoinGroupResponse, 3).member_id
    assert producer.commit(1, member_id=member, generation_id=1) == [NONE], "between join and sync"
    broker.ask(SyncGroupRequest(group, 1, member, (SyncAssignment(member, b""),)), SyncGroupResponse, 3)
    assert producer.commit(1, member_id="who", generation_id=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert producer.commit(1, member_id=member, generation_id=2) == [ErrorCode.ILLEGAL_GENERATION]
    assert producer.commit(1, member_id=member) == [ErrorCode.ILLEGAL_GENERATION]
    assert producer.commit(1, member_id=member, generation_id=1) == [NONE]
    assert producer.commit(1) == [NONE]
    named = producer.commit(1, member_id=member, generation_id=1, group_instance_id="i")
    assert named == [ErrorCode.UNKNOWN_MEMBER_ID]
    producer.end(commits=True)


def test_without_a_group(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    assert producer.commit(1, member_id="m", generation_id=1) == [ErrorCode.ILLEGAL_GENERATION]
    assert producer.commit(1, member_id="m") == [NONE]
    producer.end(commits=True)
    assert broker.fetch(group) == (1, NONE)


def test_two_producers_are_pending_on_one_partition(broker: Broker, group: str) -> None:
    one, other = Producer(broker, group, "1"), Producer(broker, group, "2")
    one.commit_now(5)
    other.commit_now(6)
    one.end(commits=True)
    assert broker.fetch(group) == (-1, UNSTABLE)
    assert broker.fetch(group, stable=False) == (5, NONE)
    other.end(commits=False)
    assert broker.fetch(group) == (5, NONE)


@pytest.mark.parametrize("only_the_offset", [True, False])
def test_a_deleted_offset_is_not_created_again(broker: Broker, group: str, only_the_offset: bool) -> None:
    producer = Producer(broker, group)
    producer.commit_now(5)
    if only_the_offset:
        topics = (DeleteTopic("orders", (DeletePartition(0),)),)
        assert broker.ask(OffsetDeleteRequest(group, topics), OffsetDeleteResponse, 0).error_code == 0
    else:
        (deleted,) = broker.ask(DeleteGroupsRequest((group,)), DeleteGroupsResponse, 2).results
        assert deleted.error_code == 0
    assert broker.fetch(group) == (-1, NONE)
    producer.end(commits=True)
    assert broker.fetch(group) == (-1, NONE)


@pytest.mark.parametrize(
    ("version", "refusal"),
    [(0, "INVALID_TXN_STATE"), (3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")],
)
def test_offsets_that_were_not_added(broker: Broker, group: str, version: int, refusal: str) -> None:
    producer = Producer(broker, group)
    assert producer.commit(5, version=version) == [ErrorCode[refusal]]
    assert producer.state() == ("Empty", [])
    assert broker.fetch(group) == (-1, NONE)


def test_version_5_adds_them(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    producer.commit_now(5)
    assert producer.state() == ("Ongoing", ["__consumer_offsets"])
    producer.end(commits=True)


def test_a_refused_member_leaves_the_offsets_added(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    assert producer.commit(5, member_id="m", generation_id=1) == [ErrorCode.ILLEGAL_GENERATION]
    assert producer.state() == ("Ongoing", ["__consumer_offsets"])


def test_long_metadata_is_refused(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    assert producer.commit(5, metadata="m" * 5_000) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert broker.fetch(group) == (-1, NONE)


def test_partitions_that_do_not_exist(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit(1, 2, 3, 4) == [NONE, NONE, NONE, missing]


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer(broker: Broker, group: str, version: int) -> None:
    producer = Producer(broker, group)
    Producer(broker, group)
    assert producer.commit(5, version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_an_unknown_transactional_id(broker: Broker, group: str) -> None:
    producer = Producer(broker, group)
    producer.id += "-unknown"
    assert producer.commit(5) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# One directory, used by both in turn


LONG_MS = 900_000


@pytest.mark.parametrize("crashes", [True, False])
def test_pending_offsets_survive_both_takeovers(tmp_path: Path, crashes: bool) -> None:
    """Open transactions survive a change of the system, in both directions, like a restart of the same broker."""
    require("java", "mvn")
    data = tmp_path / "data"
    kafka = KafkaNode(data, overrides=SETTINGS)
    kafka.format("4L6g3nShT-eMCtK--X86sw")
    kafka.start()
    try:
        first = Broker(kafka.bootstrap)
        assert_committed(first, "plain", 3)
        producers = [Producer(first, group, timeout_ms=LONG_MS) for group in ("commits", "aborts", "stays")]
        for producer in producers:
            assert first.commit(producer.group, 1) is NONE
            producer.commit_now(5)
    finally:
        (kafka.kill if crashes else kafka.stop)()

    klamm = NodeProcess(data, overrides=SETTINGS)
    klamm.start()
    try:
        second = Broker(klamm.bootstrap)
        assert second.loaded("plain") == (3, NONE)
        commits, aborts, stays = producers
        for producer in producers:
            producer.broker = second
            assert second.loaded(producer.group) == (-1, UNSTABLE)
            assert second.fetch(producer.group, stable=False) == (1, NONE)
        commits.end(commits=True)
        aborts.end(commits=False)
        assert second.fetch("commits") == (5, NONE)
        assert second.fetch("aborts") == (1, NONE)
        commits.commit_now(8)
        aborts.commit_now(9)
        aborts.end(commits=True)
    finally:
        if crashes:
            klamm.kill()
        else:
            assert klamm.stop() == 0, klamm.log()

    with KafkaNode(data, overrides=SETTINGS) as again:
        third = Broker(again.bootstrap)
        for producer in producers:
            producer.broker = third
        assert third.loaded("plain") == (3, NONE)
        assert third.loaded("aborts") == (9, NONE)
        assert third.loaded("commits") == (-1, UNSTABLE)
        assert third.loaded("stays") == (-1, UNSTABLE)
        commits.end(commits=True)
        stays.end(commits=True)
        assert third.fetch("commits") == (8, NONE)
        assert third.fetch("stays") == (5, NONE)


def assert_committed(broker: Broker, group: str, offset: int) -> None:
    broker.prepare(group, group)
    assert broker.commit(group, offset) is NONE
