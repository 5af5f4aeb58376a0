"""The same admin requests to Apache Kafka 4.3.1 and to our controller: the same codes, the same configs described.

Requests are sent over the network to a running Kafka node, and executed by our core on its own image. Only codes and
values are compared, because messages have our own wording.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.config import entries
from klamm.config.broker_checks import preprocess
from klamm.config.values import NodeLayers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.messages.feature_updates import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.wire.codec import decode_response, from_entity, write_request
from tests.interop.apache_kafka import running
from tests.support.foreign import require
from tests.support.frames import read_frame, send_frame
from tests.unit.controller.cluster import Cluster, topic_configs, uuid

FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
OVERRIDES = {
    "log.retention.hours": "48",
    "log.roll.ms": "600000",
    "num.partitions": "3",
    "compression.type": "lz4",
    "group.consumer.session.timeout.ms": "46000",
}
TOPIC, BROKER, _, METRICS, GROUP = map(int, ResourceType)
SET, DELETE, APPEND, SUBTRACT = range(4)
APPLIED_S = 10.0


class Wire:
    """A connection for our request and response types; the newest versions are flexible."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)

    def ask(self, request: Any, response: Any, version: int) -> Any:
        body = write_request(request, version)
        frame = struct.pack(">hhih", request.API_KEY, version, 7, -1) + b"\0" + body
        send_frame(self._socket, frame)
        answer = read_frame(self._socket)
        return from_entity(response, decode_response(request.API_KEY, version, answer[5:]))


class Both:
    """Kafka and our core; both execute the same requests."""

    def __init__(self, wire: Wire, static: dict[str, str]) -> None:
        self.wire = wire
        self.ours = Cluster(FEATURES, node_id=1, static=static)
        self.ours.controller.on_quorum(frozenset({1}), None)
        self.ours.add_brokers(1)

    @property
    def layers(self) -> NodeLayers:
        image = self.ours.image
        return NodeLayers(self.ours.settings.static, image.configs(BROKER, ""), image.configs(BROKER, "1"))

    def create(self, *topics: CreatableTopic) -> None:
        theirs = self.wire.ask(CreateTopicsRequest(topics), CreateTopicsResponse, 7)
        ours = self.ours.create(*topics)
        assert {each.name: seen(each) for each in ours} == {each.name: seen(each) for each in theirs.topics}

    def grow(self, *topics: CreatePartitionsTopic) -> None:
        request = CreatePartitionsRequest(topics)
        theirs = self.wire.ask(request, CreatePartitionsResponse, 3)
        ours = self.ours.ask(request)
        assert {each.name: each.error_code for each in ours.results} == {
            each.name: each.error_code for each in theirs.results
        }

    def delete(self, *states: DeleteTopicState) -> None:
        request = DeleteTopicsRequest(states)
        theirs = self.wire.ask(request, DeleteTopicsResponse, 6)
        ours = self.ours.ask(request, 6)
        assert sorted((str(each.name), each.error_code) for each in ours.responses) == sorted(
            (str(each.name), each.error_code) for each in theirs.responses
        )

    def alter(self, resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> None:
        configs = tuple(AlterableConfig(key, value, operation) for key, operation, value in changes)
        resources = (AlterConfigsResource(resource_type, name, configs),)
        theirs = self._altered_by_kafka(resources)
        if all(operation == DELETE for _, operation, _ in changes):
            # Its broker validates against applied metadata, shortly after the controller has accepted earlier changes.
            deadline = time.monotonic() + APPLIED_S
            while ErrorCode.INVALID_REQUEST in theirs and time.monotonic() < deadline:
                time.sleep(0.05)
                theirs = self._altered_by_kafka(resources)
        first = preprocess(resources, 1, self.layers, is_incremental=True)
        request = IncrementalAlterConfigsRequest(first.forward)
        ours = self.ours.ask(request)
        codes = [error.code for error in first.errors.values()] + [each.error_code for each in ours.responses]
        assert codes == theirs, (resource_type, name, changes)

    def _altered_by_kafka(self, resources: tuple[AlterConfigsResource, ...]) -> list[ErrorCode]:
        asked = self.wire.ask(IncrementalAlterConfigsRequest(resources), IncrementalAlterConfigsResponse, 1)
        return [each.error_code for each in asked.responses]

    def elect(self, election_type: int, *topics: TopicPartitions) -> None:
        request = ElectLeadersRequest(topics, election_type)
        theirs = self.wire.ask(request, ElectLeadersResponse, 2)
        ours = self.ours.ask(request)
        assert elected(ours) == elected(theirs)

    def update(self, *updates: tuple[str, int, int]) -> None:
        request = UpdateFeaturesRequest(tuple(FeatureUpdateKey(*each) for each in updates))
        theirs = self.wire.ask(request, UpdateFeaturesResponse, 2)
        ours = self.ours.ask(request)
        assert ours.error_code == theirs.error_code, updates

    def describe(self, resource_type: int, name: str, ours: entries.Entries) -> None:
        request = DescribeConfigsRequest((DescribeConfigsResource(resource_type, name),), include_synonyms=True)
        (theirs,) = self.wire.ask(request, DescribeConfigsResponse, 4).results
        assert theirs.error_code is ErrorCode.NONE
        assert by_name(ours) == by_name(theirs.configs)


def seen(result: Any) -> tuple[object, ...]:
    return result.error_code, result.num_partitions, result.replication_factor, result.configs


def elected(answer: ElectLeadersResponse) -> tuple[ErrorCode, dict[str, list[tuple[int, ErrorCode]]]]:
    results = {
        topic.topic: [(each.partition_id, each.error_code) for each in topic.partition_result]
        for topic in answer.replica_election_results
    }
    return answer.error_code, results


def by_name(described: entries.Entries) -> dict[str, DescribeConfigsResourceResult]:
    return {entry.name: entry for entry in described if not entry.name.startswith("klamm.")}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require("java", "mvn")
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running(data, "4L6g3nShT-eMCtK--X86sw", OVERRIDES) as node:
        # Kafka sets broker.id to the value of node.id.
        both = Both(Wire(("127.0.0.1", node.port)), {"broker.id": "1", **node.settings})
        configs = topic_configs(retention_ms=" 5000 ", cleanup_policy="compact , delete", preallocate="TRUE")
        both.create(CreatableTopic("plain"), CreatableTopic("foo", 2, 1, configs=configs))
        yield both


def assigned(name: str, *assignments: tuple[int, tuple[int, ...]]) -> CreatableTopic:
    return CreatableTopic(name, assignments=tuple(CreatableReplicaAssignment(*each) for each in assignments))


def test_creating_topics(both: Both) -> None:
    for name in ("a.b", "a_b", "a.b", "", ".", "..", "x" * 250, "a b", "__cluster_metadata"):
        both.create(CreatableTopic(name, 1, 1))
    both.create(CreatableTopic("twice", 1, 1), CreatableTopic("twice", 2, 1), CreatableTopic("once", 1, 1))
    for at, (count, factor) in enumerate([(1, 0), (1, 2), (0, 1), (-2, 1), (1, -2), (0, 0), (10_001, 1), (10_000, 1)]):
        both.create(CreatableTopic(f"counts{at}", count, factor))
    both.create(assigned("manual", (0, (1,)), (1, (1,))))
    for at, parts in enumerate([((0, (1,)), (0, (1,))), ((1, (1,)),), ((0, ()),), ((0, (9,)),), ((0, (1, 1)),)]):
        both.create(assigned(f"manual{at}", *parts))
    both.create()


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": None},
        {"no_such": "1"},
        {"retention_ms": "soon"},
        {"retention_ms": "+5"},
        {"retention_ms": "1_0"},
        {"segment_bytes": "12"},
        {"segment_bytes": "1e9"},
        {"max_message_bytes": "2147483648"},
        {"cleanup_policy": "shred"},
        {"cleanup_policy": "compact,,delete"},
        {"cleanup_policy": ""},
        {"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "4"},
        {"remote_storage_enable": "true"},
        {"preallocate": "yes"},
        {"min_cleanable_dirty_ratio": "2"},
        {"min_cleanable_dirty_ratio": "0.1d"},
        {"compression_type": "none"},
        {"compression_gzip_level": "0"},
        {"min_insync_replicas": "0"},
        {"message_timestamp_type": "x"},
        {"leader_replication_throttled_replicas": "0-1"},
        {"leader_replication_throttled_replicas": "0:1,1:2"},
        {"internal_segment_bytes": "100"},
    ],
)
def test_configs_at_creation(both: Both, configs: dict[str, str]) -> None:
    name = "-".join([*configs, *map(str, configs.values())]).encode().hex()[:200]
    both.create(CreatableTopic(name, 1, 1, configs=topic_configs(**configs)))


def test_adding_partitions_and_deleting(both: Both) -> None:
    both.create(CreatableTopic("growing", 2, 1))
    one, none, other, same = ((1,),), ((),), ((9,),), ((1, 1),)
    for count, assignments in [(2, None), (1, None), (0, None), (4, one), (3, none), (3, other), (3, same), (3, one)]:
        given = None if assignments is None else tuple(map(CreatePartitionsAssignment, assignments))
        both.grow(CreatePartitionsTopic("growing", count, given))
    both.grow(CreatePartitionsTopic("growing", 9), CreatePartitionsTopic("growing", 8))
    both.grow(CreatePartitionsTopic("nope", 4))
    twice = DeleteTopicState("twice")
    named_and_numbered = DeleteTopicState("growing", uuid(3))
    both.delete(DeleteTopicState("nope"), DeleteTopicState(None, uuid(9)), DeleteTopicState(), named_and_numbered)
    both.delete(twice, twice, DeleteTopicState("growing"))
    both.create(CreatableTopic("growing", 1, 1))


def test_changing_configs(both: Both) -> None:
    both.create(CreatableTopic("conf", 1, 1, configs=topic_configs(cleanup_policy="compact")))
    for changes in (
        [("retention.ms", SET, "7")],
        [("retention.ms", APPEND, "7")],
        [("nope", APPEND, "7")],
        [("nope", SET, "7")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", APPEND, "compact,delete")],
        [("retention.ms", SET, None)],
        [("retention.ms", DELETE, None)],
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    ):
        both.alter(TOPIC, "conf", *changes)
    for name in ("nope", "", "a b"):
        both.alter(TOPIC, name, ("retention.ms", SET, "7"))
    for name, key, operation, value in [
        ("1", "background.threads", SET, "12"),
        ("2", "background.threads", SET, "12"),
        ("x", "background.threads", SET, "12"),
        ("", "background.threads", APPEND, "1"),
        ("", "num.io.threads", SET, "3"),
        ("", "num.io.threads", SET, "17"),
        ("1", "log.cleaner.threads", SET, "9"),
        ("", "node.id", SET, "12"),
        ("", "listeners", SET, "PLAINTEXT://:1"),
        ("", "log.retention.ms", SET, "abc"),
        ("", "log.retention.ms", SET, "99000"),
        ("", "custom.thing", SET, "1"),
        ("", "custom.thing", APPEND, "1"),
        ("1", "ssl.keystore.location", SET, "/x"),
        ("", "sasl.jaas.config", SET, "secret"),
        ("", "min.insync.replicas", DELETE, None),
        ("1", "min.insync.replicas", SET, "1"),
        ("", "cordoned.log.dirs", SET, "/x"),
        ("1", "cordoned.log.dirs", SET, "/x"),
        ("1", "log.local.retention.ms", SET, "99999999999"),
        ("1", "max.connections.per.ip", SET, "77"),
        ("", "leader.replication.throttled.rate", SET, "77"),
    ]:
        both.alter(BROKER, name, (key, operation, value))
    for name, key, value in [
        ("m", "interval.ms", "500"),
        ("", "interval.ms", "500"),
        ("m", "interval.ms", "9"),
        ("m", "interval.ms", "x"),
        ("m", "foo", "9"),
        ("m", "match", "client_id=a"),
        ("m", "match", "a"),
        ("m", "match", "client_id=["),
        ("m", "metrics", "a,,b"),
    ]:
        both.alter(METRICS, name, (key, SET, value))
    for name, key, value in [
        ("g", "consumer.session.timeout.ms", "50000"),
        ("", "consumer.session.timeout.ms", "50000"),
        ("g", "consumer.session.timeout.ms", "5"),
        ("g", "consumer.session.timeout.ms", "500000"),
        ("g", "consumer.heartbeat.interval.ms", "1"),
        ("g", "streams.num.standby.replicas", "5"),
        ("g", "share.auto.offset.reset", "by_duration:PT1H"),
        ("g", "share.auto.offset.reset", "by_duration:x"),
        ("g", "share.isolation.level", "x"),
        ("g", "nope", "5"),
    ]:
        both.alter(GROUP, name, (key, SET, value))
    for resource_type in (0, 3):
        both.alter(resource_type, "1", ("a", SET, "b"))


def test_describing_configs(both: Both) -> None:
    """Each key of each resource type: value, source, synonyms, type, and whether it is read-only."""
    wanted = entries.ConfigQuery(synonyms=True)
    image, layers = both.ours.image, both.layers
    for topic in ("foo", "plain"):
        both.describe(TOPIC, topic, entries.describe_topic(layers, image.configs(TOPIC, topic), wanted))
    both.describe(BROKER, "1", entries.describe_node(layers, wanted))
    both.describe(BROKER, "", entries.describe_cluster_default(layers, wanted))
    for group in ("g", "other"):
        both.describe(GROUP, group, entries.describe_group(layers, image.configs(GROUP, group), wanted))
    for subscription in ("m", "other"):
        configs = image.configs(METRICS, subscription)
        both.describe(METRICS, subscription, entries.describe_client_metrics(configs, wanted))


def test_dynamic_configs_that_no_broker_could_start_with(both: Both) -> None:
    wrong = {
        "max.connections": "0",
        "max.connection.creation.rate": "0",
        "max.connections.per.ip": "0",
        "max.connections.per.ip.overrides": "x",
        "listener.name.plaintext.max.connections": "0",
        "log.cleaner.dedupe.buffer.size": "1000",
        "log.cleaner.threads": "0",
        "log.roll.ms": "0",
        "log.retention.ms": "0",
        "message.max.bytes": "-1",
        "num.network.threads": "0",
    }
    for key, value in wrong.items():
        for name in ("", "1"):
            both.alter(BROKER, name, (key, SET, value))
            both.alter(BROKER, name, (key, DELETE, None))
    # It is accepted, although the broker then cannot apply it. Until it has tried, it may reject other changes: this is
    # last.
    both.alter(BROKER, "", ("log.flush.interval.ms", SET, "-1"))


def test_elections(both: Both) -> None:
    both.elect(0, TopicPartitions("foo", (0, 1, 99)), TopicPartitions("nope", (0,)))
    both.elect(1, TopicPartitions("foo", (0,)))
    both.elect(2, TopicPartitions("foo", (0,)))


def test_features(both: Both) -> None:
    for update in [
        ("metadata.version", 31, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 29, 3),
        ("metadata.version", 30, 1),
        ("nope", 1, 1),
        ("group.version", 0, 1),
        ("group.version", 0, 2),
        ("group.version", 1, 1),
        ("group.version", 5, 1),
        ("group.version", -1, 1),
        ("group.version", 1, 0),
        ("eligible.leader.replicas.version", 0, 2),
        ("eligible.leader.replicas.version", 1, 1),
        ("kraft.version", 0, 1),
        ("kraft.version", 0, 2),
        ("kraft.version", 2, 1),
        ("kraft.version", 1, 2),
        ("kraft.version", 1, 1),
    ]:
        both.update(update)
    both.update(("streams.version", 0, 2), ("nope", 1, 1))
