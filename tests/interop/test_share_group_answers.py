"""Share groups at the group coordinator, request by request (KIP-932): Apache Kafka 4.3.1 and klamm respond alike."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from klamm import Cluster
from klamm.coordinator.groups.records import decode
from klamm.coordinator.groups.share.records import ShareRecord
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.interop import apache_kafka
from tests.interop.share_group_peer import GROUP_CONFIG, Node
from tests.interop.share_states import NONE, UNKNOWN, patiently
from tests.support.foreign import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.timeout(300)

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
OF_UNKNOWN = "This server does not host this topic-partition."
NOWHERE = (-1, -1, NONE)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture(scope="module", params=["Apache Kafka", "klamm"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "klamm":
        with Cluster(config=GROUP_CONFIG) as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, GROUP_CONFIG) as node:
        yield node.bootstrap


@pytest.fixture
async def node(bootstrap: str) -> AsyncIterator[Node]:
    made = Node(bootstrap, f"t{uuid.uuid4().hex[:12]}")
    await made.ready()
    yield made
    made.close()


class TestHeartbeats:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"member_id": "m" * 37}, None),
            ({"member_id": ""}, None),
            ({"member_id": " "}, "MemberId can't be empty."),
            ({"group_id": " "}, "GroupId can't be empty."),
            ({"rack_id": " "}, "RackId can't be empty."),
            ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
            ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
            ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ],
    )
    async def test_invalid_requests(self, node: Node, fields: dict[str, Any], message: str | None) -> None:
        assert await node.beat("m", 0, [node.name], **fields) == (ErrorCode.INVALID_REQUEST, message, 0, None)

    async def test_a_group_from_its_first_heartbeat_to_its_end(self, node: Node) -> None:
        absent = f"Share group {node.name} not found."
        assert await node.beat("a", 2) == (NOT_FOUND, absent, 0, None)
        assert await node.beat("a", -1) == (NOT_FOUND, f"Group {node.name} not found.", 0, None)
        assert await node.beat("a", 0, [node.name]) == (NONE, None, 2, {})
        everything = {node.name: [0, 1, 2]}
        assert await node.beats_until("a", 2, everything) == 3
        assert await node.beat("a", 0, [node.name]) == (NONE, None, 3, everything)
        assert await node.beat("a", 2) == (NONE, None, 3, None), "the previous epoch"
        unknown = f"Member b is not a member of group {node.name}."
        assert await node.beat("b", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, unknown, 0, None)
        code, message, *_ = await node.beat("a", 5)
        assert (code, message) == (
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a greater member epoch (5) than the one known by the group coordinator (3). "
            "The member must abandon all its partitions and rejoin.",
        )
        code, message, *_ = await node.beat("a", 1)
        assert (code, message) == (
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a smaller member epoch (1) than the one known by the group coordinator (3), "
            "and it does not match the previous member epoch (2). The member must abandon all its partitions and "
            "rejoin.",
        )
        assert await node.beat("a", -1) == (NONE, None, -1, None)
        assert (await node.beat("a", -1))[0] is ErrorCode.UNKNOWN_MEMBER_ID
        found = await node.described()
        assert (found.group_state, found.group_epoch, found.assignment_epoch, found.members) == ("Empty", 4, 3, ())

    async def test_another_subscription(self, node: Node) -> None:
        await node.beat("a", 0, [node.name])
        await node.beats_until("a", 2, {node.name: [0, 1, 2]})
        assert await node.beat("a", 3, [node.other]) == (NONE, None, 4, {})
        assert await node.beats_until("a", 4, {node.other: [0]}) == 5
        starts = await node.starts(None)
        assert starts.keys() == {(node.name, 0), (node.name, 1), (node.name, 2), (node.other, 0)}

    async def test_members_share_partitions(self, node: Node) -> None:
        await node.beat("a", 0, [node.other])
        await node.beats_until("a", 2, {node.other: [0]})
        _, _, epoch, _ = await node.beat("b", 0, [node.other])
        assert await node.beat("b", epoch, [node.other]) == (NONE, None, epoch, {node.other: [0]})
        found = await node.described()
        assert [len(one.assignment.topic_partitions) for one in found.members] == [1, 1]


class TestReads:
    async def test_described_and_listed(self, node: Node) -> None:
        absent = await node.described()
        assert (absent.error_code, absent.error_message) == (NOT_FOUND, f"Group {node.name} not found.")
        await node.beat("a", 0, [node.name])
        await node.beats_until("a", 2, {node.name: [0, 1, 2]})
        found = await node.described()
        assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (
            NONE,
            "Stable",
            3,
            3,
        )
        assert found.assignor_name == "simple"
        [member] = found.members
        assert (member.member_id, member.member_epoch, member.client_id) == ("a", 3, "test")
        assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", (node.name,))
        [topic] = member.assignment.topic_partitions
        assert (topic.topic_name, sorted(topic.partitions)) == (node.name, [0, 1, 2])
        assert await node.listed("share") == {(node.name, "share", "Stable", "share")}
        assert await node.listed("classic", "consumer") == set()


class TestOffsets:
    async def test_altered_described_and_deleted(self, node: Node) -> None:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for _ in range(10):
            producer.produce(node.name, b"x", partition=0)
        assert producer.flush(30) == 0
        altered = await node.alter({node.name: {0: 4, 1: 0, 7: 2}, "absent": {0: 1}})
        assert altered.error_code is NONE
        results = {
            (topic.topic_name, one.partition_index): (one.error_code, one.error_message)
            for topic in altered.responses
            for one in topic.partitions
        }
        assert results == {
            (node.name, 0): (NONE, None),
            (node.name, 1): (NONE, None),
            (node.name, 7): (UNKNOWN, OF_UNKNOWN),
            ("absent", 0): (UNKNOWN, OF_UNKNOWN),
        }
        expected = {(node.name, 0): (4, 6, NONE), (node.name, 1): (0, 0, NONE)}
        await patiently(lambda: node.starts(None), lambda found: found == expected)
        named = await node.starts({node.name: [0, 2], "absent": [0]})
        assert named == {(node.name, 0): (4, 6, NONE), (node.name, 2): NOWHERE, ("absent", 0): NOWHERE}
        deleted = await node.delete_offsets(node.name, "absent")
        assert deleted.error_code is NONE
        assert {one.topic_name: (one.error_code, one.error_message) for one in deleted.responses} == {
            node.name: (NONE, None),
            "absent": (UNKNOWN, OF_UNKNOWN),
        }
        [again] = (await node.delete_offsets(node.name)).responses
        assert (again.error_code, again.error_message) == (UNKNOWN, "There is no offset information to delete.")
        assert await node.starts(None) == {}

    async def test_groups_with_members(self, node: Node) -> None:
        await node.beat("a", 0, [node.name])
        altered, deleted = await node.alter({node.name: {0: 5}}), await node.delete_offsets(node.name)
        refused = ErrorCode.NON_EMPTY_GROUP, "The group is not empty."
        assert (altered.error_code, altered.error_message) == refused
        assert (deleted.error_code, deleted.error_message) == refused
        assert await node.delete() == {node.name: ErrorCode.NON_EMPTY_GROUP}

    async def test_groups_that_do_not_exist(self, node: Node) -> None:
        assert await node.starts({node.name: [0]}) == {(node.name, 0): NOWHERE}
        assert await node.starts(None) == {}
        deleted = await node.delete_offsets(node.name)
        assert (deleted.error_code, deleted.error_message) == (NOT_FOUND, f"Group {node.name} not found.")
        for found in (await node.delete_offsets(node.name, group_id=""), await node.alter({}, group_id="")):
            assert (found.error_code, found.error_message) == (ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")

    async def test_a_deleted_group(self, node: Node) -> None:
        await node.beat("a", 0, [node.name])
        await node.beats_until("a", 2, {node.name: [0, 1, 2]})
        await node.beat("a", -1)
        assert await node.delete(node.name, "nobody") == {node.name: NONE, "nobody": NOT_FOUND}
        assert (await node.described()).error_code is NOT_FOUND
        assert await node.starts({node.name: [0]}) == {(node.name, 0): NOWHERE}


async def test_other_apis_on_the_id_of_a_share_group(node: Node) -> None:
    assert (await node.alter({node.name: {0: 4}})).error_code is NONE
    found = await node.described()
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Empty", 1, 1)
    joined = await node.ask(
        ApiKey.JOIN_GROUP,
        9,
        group_id=node.name,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert joined.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = await node.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=node.name,
        member_id="x",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[node.name],
        topic_partitions=[],
    )
    message = f"Group {node.name} is not a consumer group."
    assert (consumer.error_code, consumer.error_message) == (NOT_FOUND, message)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": node.name, "partitions": [partition]}]
    fields = {"group_id": node.name, "generation_id_or_member_epoch": -1, "topics": topics}
    committed = await node.ask(ApiKey.OFFSET_COMMIT, 8, **fields)
    assert committed.topics[0].partitions[0].error_code is NOT_FOUND
    described = (await node.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[node.name])).groups[0]
    assert (described.error_code, described.group_state) == (NOT_FOUND, "Dead")
    assert described.error_message == f"Group {node.name} is not a classic group."


async def test_the_records_are_read_and_written_alike(node: Node) -> None:
    """Byte for byte: decoding each record of a share group and encoding it again gives the same bytes."""
    await node.beat("a", 0, [node.other, "absent"], rack_id="r")
    epoch = await node.beats_until("a", 2, {node.other: [0]})
    await node.beat("a", -1)
    await node.delete_offsets(node.other)
    assert epoch == 3
    assert await node.delete() == {node.name: NONE}
    records = await asyncio.to_thread(node.group_records)
    assert {key[1] for key, _ in records} == {10, 11, 12, 13, 14, 15}
    assert any(value is None for _, value in records)
    for key, value in records:
        record = decode(key, value)
        assert isinstance(record, ShareRecord)
        assert record.encoded() == (key, value)


async def test_a_group_moves_to_klamm_and_back(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    kafka = apache_kafka.KafkaNode(data, overrides=GROUP_CONFIG)
    kafka.format(CLUSTER_ID)
    everything = {"moved": [0, 1, 2]}
    with kafka:
        one = await started(kafka.bootstrap)
        await one.beat("a", 0, ["moved"])
        assert await one.beats_until("a", 2, everything) == 3
        one.close()
    klamm = NodeProcess(data, overrides=GROUP_CONFIG)
    with klamm:
        one = await started(klamm.bootstrap)
        assert (await one.described()).group_epoch == 3
        assert await one.beat("a", 3) == (NONE, None, 3, None)
        await one.beat("b", 0, ["moved"])
        found = await one.described()
        assert (found.group_state, found.group_epoch, len(found.members)) == ("Stable", 4, 2)
        assert (await one.beat("a", -1))[0] is NONE
        _, _, epoch, _ = await one.beat("b", 4)
        assigned = await one.beat("b", 0, ["moved"])
        assert assigned == (NONE, None, epoch, everything)
        one.close()
        assert klamm.stop() == 0, klamm.log()
    with kafka:
        one = await started(kafka.bootstrap)
        found = await one.described()
        assert (found.group_state, found.group_epoch) == ("Stable", epoch)
        assert await one.beat("b", epoch, ["moved"]) == (NONE, None, epoch, everything)
        one.close()


async def started(bootstrap: str) -> Node:
    node = Node(bootstrap, "moved")
    await node.ready()
    return node
