"""The handlers, from bytes to bytes, with the real coordinator and the metadata of a few topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.request_contexts import request_context
from tests.unit.coordinator.memory_log import MemoryLog

from klamm._engine.groups import CommitRequest
from klamm.broker.authorization import AllowAll
from klamm.broker.handlers.coordinators import GROUP_KEY, TRANSACTION_KEY, CoordinatorHandlers, Endpoint
from klamm.broker.handlers.groups import ALL_GROUP_OPERATIONS, GroupHandlers
from klamm.broker.handlers.offsets import OffsetHandlers
from klamm.broker.request import Handler, InlineHandler
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.node.requests.dispatch import Dispatcher
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CommittedPartition,
    CommittedTopic,
    OffsetCommitResponse,
)
from klamm.protocol.topic_info import TopicInfo
from klamm.protocol.wire.codec import (
    build,
    decode_response,
    encode,
    write,
)
from klamm.protocol.wire.kio_classes import request_class

from .harness import subscription
from .images import image_of
from .test_driver import CONFIG, FakeCoordinator

GROUP_API_VERSIONS = {
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
}

ORDERS = TopicInfo("orders", b"o" * 16, 3)


class Topics:
    """Two topics, and the location of the offsets topic."""

    def __init__(self) -> None:
        self.topics = {topic.name: topic for topic in (ORDERS, TopicInfo("payments", b"p" * 16, 1))}
        self.created: list[str] = []
        self.has_leader = True
        self.image = image_of(*self.topics.values())

    def by_name(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def exists(self, topic: str) -> bool:
        return topic in self.created

    def create(self, topic: str) -> None:
        self.created.append(topic)

    def leader(self, topic: str, partition: int, listener: str) -> Endpoint | None:
        return Endpoint(1, f"host-{listener}", 9000 + partition) if self.has_leader else None


class Broker:
    """Handlers by API key."""

    def __init__(self, groups: GroupCoordinator, transactions: FakeCoordinator) -> None:
        self.topics = Topics()
        self.groups = groups
        self.transactions = transactions
        self.answers: dict[int, bytes | None] = {}
        one, two = GroupHandlers(groups), OffsetHandlers(groups, self.topics)
        placements = {GROUP_KEY: ("__consumer_offsets", groups.partition_for), TRANSACTION_KEY: ("__of_ids", len)}
        self.is_request_time_limited = self.is_measuring_requests = False
        self.handlers: dict[int, Handler | InlineHandler] = {
            ApiKey.OFFSET_COMMIT: InlineHandler(two.offset_commit, two.commit),
            ApiKey.OFFSET_FETCH: InlineHandler(two.offset_fetch),
            ApiKey.OFFSET_DELETE: two.offset_delete,
            ApiKey.TXN_OFFSET_COMMIT: two.txn_offset_commit,
            ApiKey.FIND_COORDINATOR: CoordinatorHandlers(self.topics, placements).find_coordinator,
            ApiKey.JOIN_GROUP: one.join_group,
            ApiKey.HEARTBEAT: InlineHandler(one.heartbeat),
            ApiKey.LEAVE_GROUP: one.leave_group,
            ApiKey.SYNC_GROUP: one.sync_group,
            ApiKey.DESCRIBE_GROUPS: one.describe_groups,
            ApiKey.LIST_GROUPS: one.list_groups,
            ApiKey.DELETE_GROUPS: one.delete_groups,
        }

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        return decode_response(api_key, version, await self.ask_raw(api_key, version, **fields))

    async def ask_raw(self, api_key: int, version: int, **fields: Any) -> bytes:
        body = encode(build(request_class(api_key, version), **fields))
        dispatcher = Dispatcher(self, self, AllowAll())
        dispatcher.dispatch(1, request_context(api_key, version), body)
        await dispatcher.drain(30)
        answer = self.answers.pop(1)
        assert answer is not None, "the connection is closed"
        return answer

    def find(self, api_key: int, *, on_controller: bool) -> Handler | InlineHandler:
        return self.handlers[api_key]

    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        self.answers |= dict(answers)

    def note_handler_time(self, handle: int, ns: int) -> None:
        raise AssertionError("no time is limited")


@pytest.fixture
async def broker() -> Broker:
    transactions = FakeCoordinator()
    groups = GroupCoordinator(CONFIG, MemoryLog(), 4, verify=transactions)
    for partition in range(4):
        groups.on_elected(partition, 1)
    await groups.loaded()
    return Broker(groups, transactions)


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator(broker: Broker, version: int) -> None:
    fields: dict[str, Any] = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
    first = await broker.ask(ApiKey.FIND_COORDINATOR, version, **fields)
    first = first if version < 4 else first.coordinators[0]
    assert (first.error_code, first.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert broker.topics.created == ["__consumer_offsets"]
    second = await broker.ask(ApiKey.FIND_COORDINATOR, version, **fields)
    if version < 4:
        found = second
    else:
        (found,) = second.coordinators
        assert found.key == "g"
    port = 9000 + broker.groups.partition_for("g")
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 1, "host-PLAINTEXT", port)
    broker.topics.has_leader = False
    third = await broker.ask(ApiKey.FIND_COORDINATOR, version, **fields)
    third = third if version < 4 else third.coordinators[0]
    assert third.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_find_coordinators_of_transactional_ids(broker: Broker) -> None:
    fields: dict[str, Any] = {"key_type": 1, "coordinator_keys": ["ab", "abc"]}
    await broker.ask(ApiKey.FIND_COORDINATOR, 6, **fields)
    assert set(broker.topics.created) == {"__of_ids"}
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, **fields)
    assert [(one.key, one.port) for one in answer.coordinators] == [("ab", 9002), ("abc", 9003)]


@pytest.mark.parametrize("key_type", [2, 9])
async def test_unknown_coordinator_types(broker: Broker, key_type: int) -> None:
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=["a", "b"])
    assert [one.error_code for one in answer.coordinators] == [ErrorCode.INVALID_REQUEST] * 2
    assert [one.key for one in answer.coordinators] == ["a", "b"]


@pytest.mark.parametrize("newest", [True, False])
async def test_a_life_in_the_oldest_and_the_newest_versions(broker: Broker, newest: bool) -> None:
    at = {api_key: versions[newest] for api_key, versions in GROUP_API_VERSIONS.items()}
    fields = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
    }
    joined = await broker.ask(ApiKey.JOIN_GROUP, at[ApiKey.JOIN_GROUP], **fields)
    if newest:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await broker.ask(ApiKey.JOIN_GROUP, at[ApiKey.JOIN_GROUP], member_id=joined.member_id, **fields)
    assert joined.error_code == ErrorCode.NONE
    me = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assignments = [{"member_id": joined.member_id, "assignment": b"all"}]
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = await broker.ask(ApiKey.SYNC_GROUP, at[ApiKey.SYNC_GROUP], assignments=assignments, **me, **protocol)
    assert synced.assignment == b"all"
    assert (await broker.ask(ApiKey.HEARTBEAT, at[ApiKey.HEARTBEAT], **me)).error_code == ErrorCode.NONE
    topic = {"name": "orders", "topic_id": ORDERS.topic_id}
    committed = await broker.ask(
        ApiKey.OFFSET_COMMIT,
        at[ApiKey.OFFSET_COMMIT],
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id=joined.member_id,
        topics=[topic | {"partitions": [{"partition_index": 2, "committed_offset": 5, "committed_metadata": "m"}]}],
    )
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = [topic | {"partition_indexes": [2]}]
    fetch = {"group_id": "g", "topics": wanted} if not newest else {"groups": [{"group_id": "g", "topics": wanted}]}
    fetched = await broker.ask(ApiKey.OFFSET_FETCH, at[ApiKey.OFFSET_FETCH], **fetch)
    fetched = fetched.groups[0] if newest else fetched
    assert fetched.topics[0].partitions[0].committed_offset == 5
    described = (await broker.ask(ApiKey.DESCRIBE_GROUPS, at[ApiKey.DESCRIBE_GROUPS], groups=["g"])).groups[0]
    assert described.group_state == "Stable"
    assert described.members[0].client_id == "client"
    assert described.members[0].client_host == "/127.0.0.1"
    assert described.members[0].member_metadata == subscription("orders")
    assert described.members[0].member_assignment == b"all"
    listed = (await broker.ask(ApiKey.LIST_GROUPS, at[ApiKey.LIST_GROUPS])).groups
    assert [(group.group_id, group.protocol_type) for group in listed] == [("g", "consumer")]
    leaving = {"member_id": joined.member_id}
    fields = leaving if not newest else {"members": [leaving]}
    left = await broker.ask(ApiKey.LEAVE_GROUP, at[ApiKey.LEAVE_GROUP], group_id="g", **fields)
    assert left.error_code == ErrorCode.NONE
    deleted = await broker.ask(
        ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[{"name": "orders", "partitions": [{"partition_index": 2}]}]
    )
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.NONE
    gone = await broker.ask(ApiKey.DELETE_GROUPS, at[ApiKey.DELETE_GROUPS], groups_names=["g", "g", "absent"])
    assert {result.group_id: result.error_code for result in gone.results} == {
        "g": ErrorCode.NONE,
        "absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }


async def test_from_version_5_a_sync_names_its_protocol(broker: Broker) -> None:
    answer = await broker.ask(
        ApiKey.SYNC_GROUP, 5, group_id="g", generation_id=1, member_id="m", protocol_type="consumer"
    )
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_describe_returns_authorized_operations_on_request(broker: Broker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=commit_of("orders", 0))
    plain = await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"])
    assert plain.groups[0].authorized_operations == AUTHORIZED_OPERATIONS_OMITTED
    asked = await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g", "absent"], include_authorized_operations=True)
    assert asked.groups[0].authorized_operations == ALL_GROUP_OPERATIONS == 3400
    assert asked.groups[1].authorized_operations == AUTHORIZED_OPERATIONS_OMITTED
    assert asked.groups[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def commit_of(topic: str, *partitions: int, topic_id: bytes = bytes(16)) -> list[dict[str, Any]]:
    listed = [
        {"partition_index": index, "committed_offset": 10 + index, "committed_metadata": None} for index in partitions
    ]
    return [{"name": topic, "topic_id": topic_id, "partitions": listed}]


def codes(answer: Any) -> dict[tuple[Any, int], int]:
    return {
        (getattr(topic, "name", None) or topic.topic_id.bytes, partition.partition_index): int(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [2, 9])
async def test_only_commits_of_unknown_partitions_are_rejected(broker: Broker, version: int) -> None:
    topics = commit_of("orders", 0, 3, -1) + commit_of("nowhere", 0)
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, version, group_id="g", topics=topics)
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(answer.topics) == 2
    assert codes(answer) == {("orders", 0): 0, ("orders", 3): missing, ("orders", -1): missing, ("nowhere", 0): missing}


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_commits_response_has_the_bytes_of_the_schema(broker: Broker, version: int) -> None:
    """The engine encodes responses without errors; the codec encodes the others."""
    names = (("orders", ORDERS.topic_id, (0, 2)), ("payments", b"p" * 16, (0,)))
    topics = [topic for name, topic_id, parts in names for topic in commit_of(name, *parts, topic_id=topic_id)]
    raw = await broker.ask_raw(ApiKey.OFFSET_COMMIT, version, group_id="g", topics=topics)
    committed = tuple(
        CommittedTopic(name, topic_id, tuple(CommittedPartition(index) for index in parts))
        for name, topic_id, parts in names
    )
    assert raw == write(OffsetCommitResponse(committed), version)


@pytest.mark.parametrize("version", [2, 9, 10])
async def test_an_error_of_the_group_is_returned_for_every_partition(broker: Broker, version: int) -> None:
    topics = commit_of("orders", 0, 2, 7, topic_id=ORDERS.topic_id)
    answer = await broker.ask(
        ApiKey.OFFSET_COMMIT, version, group_id="g", generation_id_or_member_epoch=3, member_id="m", topics=topics
    )
    refusal = int(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
    name = ORDERS.topic_id if version >= 10 else "orders"
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes(answer) == {(name, 0): refusal, (name, 2): refusal, (name, 7): missing}


async def test_only_the_partition_with_too_much_metadata_is_rejected(broker: Broker) -> None:
    topics = commit_of("orders", 0, 1, 2)
    topics[0]["partitions"][1]["committed_metadata"] = "x" * 5000
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=topics)
    too_large = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert codes(answer) == {("orders", 0): 0, ("orders", 1): too_large, ("orders", 2): 0}


async def test_commits_by_topic_id(broker: Broker) -> None:
    topics = commit_of("", 0, 3, topic_id=ORDERS.topic_id) + commit_of("", 0, topic_id=b"?" * 16)
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=topics)
    assert codes(answer) == {
        (ORDERS.topic_id, 0): 0,
        (ORDERS.topic_id, 3): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (b"?" * 16, 0): int(ErrorCode.UNKNOWN_TOPIC_ID),
    }


async def test_a_commit_with_nothing_that_exists_does_not_reach_the_group(broker: Broker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=commit_of("nowhere", 0))
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=[])
    listed = await broker.ask(ApiKey.LIST_GROUPS, 5)
    assert listed.groups == ()


async def test_a_commit_that_the_engine_has_read_is_answered_as_its_bytes_are(broker: Broker) -> None:
    topics = commit_of("orders", 0, 3) + commit_of("nowhere", 0)
    body = encode(build(request_class(ApiKey.OFFSET_COMMIT, 9), group_id="g", topics=topics))
    dispatcher = Dispatcher(broker, broker, AllowAll())
    dispatcher.commit(7, "127.0.0.1", CommitRequest.read(9, body, broker.topics.image))
    await dispatcher.drain(30)
    assert broker.answers.pop(7) == await broker.ask_raw(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=topics)


async def test_a_commit_that_fails_is_answered_with_an_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    request = CommitRequest("g", [(ORDERS.name, ORDERS.topic_id, [(0, 1, -1, None)])])
    dispatcher = Dispatcher(broker, broker, AllowAll())
    with monkeypatch.context() as patched:
        patched.setattr(broker.groups, "offset_commit", broken)
        dispatcher.commit(7, "192.0.2.1", request)
    dispatcher.commit(8, "192.0.2.2", request)
    await dispatcher.drain(30)
    assert (broker.answers[7], broker.answers[8]) == (request.answer(ErrorCode.UNKNOWN_SERVER_ERROR), request.answer(0))
    assert "OffsetCommit v9 of 192.0.2.1 failed" in caplog.text


async def test_many_groups_are_fetched_at_once(broker: Broker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="a", topics=commit_of("orders", 0))
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="b", topics=commit_of("payments", 0))
    groups = [{"group_id": name, "topics": None} for name in ("a", "b", "c")]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=True)
    assert [(group.group_id, [topic.name for topic in group.topics]) for group in answer.groups] == [
        ("a", ["orders"]),
        ("b", ["payments"]),
        ("c", []),
    ]


async def test_fetches_by_topic_id(broker: Broker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=commit_of("", 1, topic_id=ORDERS.topic_id))
    topics = [{"topic_id": topic_id, "partition_indexes": [1]} for topic_id in (ORDERS.topic_id, b"?" * 16)]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": topics}])
    known, unknown = answer.groups[0].topics
    assert (known.topic_id.bytes, known.partitions[0].committed_offset) == (ORDERS.topic_id, 11)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    everything = await broker.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": None}])
    assert [topic.topic_id.bytes for topic in everything.groups[0].topics] == [ORDERS.topic_id]
    broker.topics.topics.clear()
    everything = await broker.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": None}])
    assert everything.groups[0].topics == ()


async def test_offset_deletion_rejects_unknown_partitions(broker: Broker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=commit_of("orders", 0))
    topics = [
        {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 7}]},
        {"name": "nowhere", "partitions": [{"partition_index": 0}]},
    ]
    answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes(answer) == {("orders", 0): 0, ("orders", 7): missing, ("nowhere", 0): missing}
    absent = await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="absent", topics=topics)
    assert (absent.error_code, absent.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# Transactions

TXN: dict[str, Any] = {"transactional_id": "id", "group_id": "g", "producer_id": 77, "producer_epoch": 3}


def txn_commit_of(topic: str, *partitions: int, metadata: str | None = None) -> dict[str, Any]:
    listed = [
        {"partition_index": index, "committed_offset": 10 + index, "committed_metadata": metadata}
        for index in partitions
    ]
    return {"name": topic, "partitions": listed}


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_transaction(broker: Broker, version: int) -> None:
    topics = [txn_commit_of("orders", 0, 3, -1, 2), txn_commit_of("nowhere", 0)]
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, **TXN, topics=topics)
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answered = {("orders", 0): 0, ("orders", 3): missing, ("orders", -1): missing, ("orders", 2): 0}
    assert codes(answer) == answered | {("nowhere", 0): missing}
    asked = [{"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0, 1]}]}]
    fetched = await broker.ask(ApiKey.OFFSET_FETCH, 9, groups=asked, require_stable=True)
    errors = [partition.error_code for partition in fetched.groups[0].topics[0].partitions]
    assert errors == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]


async def test_a_transaction_that_commits_nothing_that_exists_is_not_verified(broker: Broker) -> None:
    broker.transactions.code = ErrorCode.PRODUCER_FENCED
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, 5, **TXN, topics=[txn_commit_of("nowhere", 0)])
    assert codes(answer) == {("nowhere", 0): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert not broker.transactions.asked


@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_whose_coordinator_is_unavailable(broker: Broker, version: int) -> None:
    broker.transactions.code = ErrorCode.NETWORK_EXCEPTION
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, **TXN, topics=[txn_commit_of("orders", 0, 1)])
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(answer) == {("orders", 0): int(error), ("orders", 1): int(error)}


async def test_long_metadata_of_a_transaction(broker: Broker) -> None:
    topics = [txn_commit_of("orders", 0), txn_commit_of("payments", 0, metadata="m" * 5_000)]
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, 5, **TXN, topics=topics)
    assert codes(answer) == {("orders", 0): 0, ("payments", 0): int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}
