"""Creating and deleting topics: every check in Kafka's order, and the resulting records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.cluster import WITH_ELR, Cluster, assigned, topic_configs, uuid

from klamm.controller.topics.topics import NewTopic, new_topic_id
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    ConfigSource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from klamm.protocol.wire.codec import write


@pytest.fixture
def one() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(0)
    return cluster


@pytest.fixture
def three() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    return cluster


def refusal(cluster: Cluster, topic: CreatableTopic) -> tuple[ErrorCode, str]:
    end = len(cluster.log)
    (result,) = cluster.create(topic)
    assert len(cluster.log) == end, "a refused topic leaves no record"
    assert result.error_message
    return result.error_code, result.error_message


def test_a_topic_by_counts(one: Cluster) -> None:
    start = len(one.log)
    (result,) = one.create(CreatableTopic("foo", 3, 1, configs=topic_configs(retention_ms="1000")))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.name, result.num_partitions, result.replication_factor) == ("foo", 3, 1)
    topic, config, *partitions = one.records(start)
    assert topic == TopicRecord(name="foo", topic_id=result.topic_id)
    assert config == ConfigRecord(resource_type=2, resource_name="foo", name="retention.ms", value="1000")
    assert [record.partition_id for record in partitions if isinstance(record, PartitionRecord)] == [0, 1, 2]
    for record in partitions:
        assert isinstance(record, PartitionRecord)
        assert (record.leader, record.leader_epoch, record.partition_epoch) == (0, 0, 0)
        assert list(record.isr) == list(record.replicas) == [0]
        assert list(record.directories) == [uuid(100)]


def test_defaults_are_the_controllers_own() -> None:
    cluster = Cluster(static={"num.partitions": "5", "default.replication.factor": "2"})
    cluster.add_brokers(1, 2, 3)
    (result,) = cluster.create(CreatableTopic("foo"))
    assert (result.num_partitions, result.replication_factor) == (5, 2)
    topic_id = cluster.image.topic_id("foo")
    assert topic_id is not None
    assert {len(partition.replicas) for partition in cluster.image.partitions(topic_id)} == {2}


def test_a_manual_assignment_is_taken_as_it_is(three: Cluster) -> None:
    topic_id = three.create_assigned("foo", [3, 1], [2, 3])
    first, second = three.image.partitions(topic_id)
    assert (first.replicas, first.isr, first.leader) == ([3, 1], [3, 1], 3)
    assert (second.replicas, second.isr, second.leader) == ([2, 3], [2, 3], 2)


def test_a_fenced_replica_is_not_in_sync(three: Cluster) -> None:
    three.register(4)
    topic_id = three.create_assigned("foo", [4, 2, 1])
    (partition,) = three.image.partitions(topic_id)
    assert (partition.replicas, partition.isr, partition.leader) == ([4, 2, 1], [2, 1], 2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "other than ASCII"),
        ("caf\u00e9", "other than ASCII"),
        ("a/b", "other than ASCII"),
        ("a\n", "other than ASCII"),
    ],
)
def test_invalid_names(one: Cluster, name: str, why: str) -> None:
    code, message = refusal(one, CreatableTopic(name, 1, 1))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert why in message


def test_the_answer_to_an_endless_name_can_be_sent(one: Cluster) -> None:
    request = CreateTopicsRequest((CreatableTopic("x" * 32_767, 1, 1),))
    answer = one.ask(request)
    assert answer.topics[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(answer.topics[0].error_message or "") < 1_100
    assert write(answer, 7)


def test_the_longest_name_and_every_legal_character(one: Cluster) -> None:
    for name in ("x" * 249, "aZ09._-"):
        assert one.create(CreatableTopic(name, 1, 1))[0].error_code is ErrorCode.NONE


def test_names_that_collide_in_metrics(one: Cluster) -> None:
    one.create(CreatableTopic("a.b_c", 1, 1))
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        code, message = refusal(one, CreatableTopic(name, 1, 1))
        assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert message.startswith(f"Topic '{name}' collides in metric names with topic 'a.b_c'")
    # An existing name is another error; and deleted topics do not collide.
    assert refusal(one, CreatableTopic("a.b_c", 1, 1))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    delete(one, names=["a.b_c"])
    assert one.create(CreatableTopic("a_b_c", 1, 1))[0].error_code is ErrorCode.NONE


def test_collisions_survive_a_fail_over(one: Cluster) -> None:
    one.create(CreatableTopic("a.b", 1, 1))
    one.fail_over()
    assert refusal(one, CreatableTopic("a_b", 1, 1))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_exists(one: Cluster) -> None:
    one.create(CreatableTopic("foo", 1, 1))
    assert refusal(one, CreatableTopic("foo", 1, 1)) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'foo' already exists.")


def test_a_name_twice_in_a_request_is_refused_once(one: Cluster) -> None:
    results = one.create(CreatableTopic("foo", 1, 1), CreatableTopic("bar", 1, 1), CreatableTopic("foo", 2, 1))
    assert [(result.name, result.error_code) for result in results] == [
        ("foo", ErrorCode.INVALID_REQUEST),
        ("bar", ErrorCode.NONE),
    ]


def test_the_metadata_topic_is_not_for_clients(one: Cluster) -> None:
    code, message = refusal(one, CreatableTopic("__cluster_metadata", 1, 1))
    assert code is ErrorCode.INVALID_REQUEST
    assert "the cluster's own log" in message


@pytest.mark.parametrize(
    ("configs", "code", "why"),
    [
        ({"retention_ms": None}, ErrorCode.INVALID_CONFIG, "no value: retention.ms"),
        ({"no_such_key": "1"}, ErrorCode.INVALID_CONFIG, "no.such.key"),
        ({"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        ({"segment_bytes": "12"}, ErrorCode.INVALID_CONFIG, "at least"),
        ({"cleanup_policy": "shred"}, ErrorCode.INVALID_CONFIG, "cleanup.policy"),
        ({"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "4"}, ErrorCode.INVALID_CONFIG, "conflict"),
        ({"remote_storage_enable": "true"}, ErrorCode.INVALID_CONFIG, "tiered storage"),
    ],
)
def test_configs_that_are_refused(one: Cluster, configs: dict[str, str], code: ErrorCode, why: str) -> None:
    found, message = refusal(one, CreatableTopic("foo", 1, 1, configs=topic_configs(**configs)))
    assert found is code
    assert why in message


def test_counts_beside_a_manual_assignment(three: Cluster) -> None:
    topic = assigned("foo", [1, 2])
    for wrong in (replace(topic, num_partitions=1), replace(topic, replication_factor=2)):
        assert refusal(three, wrong)[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ([(0, [1]), (0, [2])], "assigned more than once"),
        ([(0, [1]), (2, [2])], "without gaps"),
        ([(1, [1]), (2, [2])], "without gaps"),
        ([(-1, [1])], "without gaps"),
        ([(0, [])], "assigned to no broker"),
        ([(0, [1, 9])], "which is not registered"),
        ([(0, [1, 1])], "more than once"),
        ([(0, [1, 2]), (1, [3])], "those before it to 2"),
        ([(0, [4])], "fenced or in controlled shutdown"),
    ],
)
def test_invalid_manual_assignments(three: Cluster, assignments: list[tuple[int, list[int]]], why: str) -> None:
    three.register(4)
    parts = tuple(CreatableReplicaAssignment(index, tuple(brokers)) for index, brokers in assignments)
    code, message = refusal(three, CreatableTopic("foo", assignments=parts))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert why in message


@pytest.mark.parametrize(
    ("count", "factor", "code"),
    [
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (0, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 32767, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_invalid_counts(three: Cluster, count: int, factor: int, code: ErrorCode) -> None:
    assert refusal(three, CreatableTopic("foo", count, factor))[0] is code


def test_no_active_broker_is_a_wrong_replication_factor() -> None:
    cluster = Cluster()
    cluster.register(1)
    code, message = refusal(cluster, CreatableTopic("foo", 1, 1))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert message.startswith("Unable to replicate the partition 1 time(s)")


def test_too_many_partitions_refuse_the_request_as_a_whole(one: Cluster) -> None:
    for topics in ([CreatableTopic("foo", 10_001, 1)], [CreatableTopic(f"t{at}", 5_001, 1) for at in range(2)]):
        results = one.create(*topics)
        assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    assert refusal(one, CreatableTopic("foo", 2**31 - 1, 1))[0] is ErrorCode.POLICY_VIOLATION
    # 10,000 partitions pass that check, but with the topic's own record they exceed one batch.
    assert refusal(one, CreatableTopic("foo", 10_000, 1))[0] is ErrorCode.POLICY_VIOLATION
    assert one.create(CreatableTopic("foo", 9_999, 1))[0].error_code is ErrorCode.NONE


def test_one_wrong_topic_does_not_stop_the_others(one: Cluster) -> None:
    results = one.create(CreatableTopic("good", 1, 1), CreatableTopic("bad", 1, 2), CreatableTopic("fine", 2, 1))
    codes = [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
    assert [result.error_code for result in results] == codes
    assert one.image.topic_names() == ["fine", "good"]


def test_validate_only_answers_the_same_and_creates_nothing(one: Cluster) -> None:
    end = len(one.log)
    (result,) = one.create(CreatableTopic("foo", 3, 1), validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 3, 1)
    assert len(one.log) == end
    assert one.create(CreatableTopic("foo", 3, 1))[0].error_code is ErrorCode.NONE


def test_an_empty_request(one: Cluster) -> None:
    assert one.create() == []


def test_the_answer_shows_every_effective_config_with_its_source() -> None:
    cluster = Cluster(static={"log.retention.hours": "2", "log.segment.bytes": "2000000"})
    cluster.add_brokers(0)
    (result,) = cluster.create(CreatableTopic("foo", 1, 1, configs=topic_configs(max_message_bytes="77")))
    assert result.configs is not None
    assert len(result.configs) == 33
    shown = {each.name: (each.value, each.config_source) for each in result.configs}
    assert list(shown) == sorted(shown)
    assert shown["max.message.bytes"] == ("77", ConfigSource.TOPIC_CONFIG)
    assert shown["retention.ms"] == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)
    assert shown["segment.bytes"] == ("2000000", ConfigSource.STATIC_BROKER_CONFIG)
    assert shown["flush.ms"] == ("9223372036854775807", ConfigSource.DEFAULT_CONFIG)
    assert not any(each.read_only or each.is_sensitive for each in result.configs)


def test_the_effective_configs_follow_the_clusters_dynamic_ones(one: Cluster) -> None:
    def retention(name: str) -> tuple[str | None, int]:
        (result,) = one.create(CreatableTopic(name, 1, 1))
        (found,) = (each for each in result.configs or () if each.name == "retention.ms")
        return found.value, found.config_source

    assert retention("a") == ("604800000", ConfigSource.DEFAULT_CONFIG)
    for place, value in (("", "5000"), ("0", "6000")):
        resource = AlterConfigsResource(4, place, (AlterableConfig("log.retention.ms", value),))
        one.ask(IncrementalAlterConfigsRequest((resource,)))
        one.create(CreatableTopic("x" + place, 1, 1))
    assert retention("b") == ("6000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    resource = AlterConfigsResource(4, "0", (AlterableConfig("log.retention.ms", None, ConfigOperation.DELETE),))
    one.ask(IncrementalAlterConfigsRequest((resource,)))
    assert retention("c") == ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_min_insync_replicas_at_creation_clears_eligible_replicas() -> None:
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(1, 2)
    start = len(cluster.log)
    cluster.create_assigned("foo", [1, 2], min_insync_replicas="2")
    names = [type(record) for record in cluster.records(start)]
    assert names == [TopicRecord, ConfigRecord, ClearElrRecord, PartitionRecord]


def test_a_policy_sees_the_request_and_can_reject_it() -> None:
    seen: list[NewTopic] = []

    def policy(topic: NewTopic) -> None:
        seen.append(topic)
        if topic.name.startswith("bad"):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "no bad topics here")

    cluster = Cluster(create_topic_policy=policy)
    cluster.add_brokers(1, 2)
    assert refusal(cluster, CreatableTopic("bad", 1, 1)) == (ErrorCode.POLICY_VIOLATION, "no bad topics here")
    cluster.create_assigned("good", [2, 1], retention_ms="5")
    assert seen == [
        NewTopic("bad", 1, 1, None, {}),
        NewTopic("good", None, None, {0: (2, 1)}, {"retention.ms": "5"}),
    ]


def test_an_inactive_controller_says_so_for_every_topic(one: Cluster) -> None:
    one.controller.on_not_leader(one.now_ms)
    request = CreateTopicsRequest((CreatableTopic("foo", 1, 1), CreatableTopic("bar", 1, 1)))
    answer = one.ask(request)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("foo", ErrorCode.NOT_CONTROLLER),
        ("bar", ErrorCode.NOT_CONTROLLER),
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_are_version_4_and_never_look_like_an_option(random: bytes) -> None:
    topic_id = new_topic_id(random)
    assert topic_id[6] >> 4 == 4
    assert topic_id[8] >> 6 == 2
    assert topic_id[0] >> 2 != 62


# Deleting


def delete(
    cluster: Cluster, names: list[str] | None = None, ids: list[bytes] | None = None, api_version: int = 6
) -> list[DeletableTopicResult]:
    states = [DeleteTopicState(name) for name in names or ()] + [DeleteTopicState(None, each) for each in ids or ()]
    return delete_states(cluster, *states, api_version=api_version)


def delete_states(cluster: Cluster, *states: DeleteTopicState, api_version: int = 6) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(states)
    return list(cluster.ask(request, api_version).responses)


def test_delete_by_name_by_id_and_by_the_old_list_of_names(one: Cluster) -> None:
    one.create(*(CreatableTopic(name, 2, 1) for name in ("a", "b", "c")))
    ids = {name: one.image.topic_id(name) or b"" for name in ("a", "b", "c")}
    start = len(one.log)
    assert delete(one, names=["a"], ids=[ids["b"]]) == [
        DeletableTopicResult("b", ids["b"]),
        DeletableTopicResult("a", ids["a"]),
    ]
    request = DeleteTopicsRequest(topic_names=("c",))
    answer = one.ask(request, 1)
    assert answer.responses == (DeletableTopicResult("c", ids["c"]),)
    assert one.records(start) == [RemoveTopicRecord(topic_id=ids[name]) for name in ("b", "a", "c")]
    assert one.image.topic_names() == []


def test_deletions_that_are_refused(one: Cluster) -> None:
    one.create(CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1), CreatableTopic("c", 1, 1))
    ids = {name: one.image.topic_id(name) or b"" for name in ("a", "b", "c")}
    end = len(one.log)
    found = delete_states(
        one,
        DeleteTopicState(None),
        DeleteTopicState("a", ids["a"]),
        DeleteTopicState("nope"),
        DeleteTopicState(None, uuid(99)),
        DeleteTopicState("twice"),
        DeleteTopicState("twice"),
        DeleteTopicState(None, ids["b"]),
        DeleteTopicState("b"),
        DeleteTopicState(None, ids["c"]),
        DeleteTopicState(None, ids["c"]),
    )
    codes = {(result.name, result.topic_id): result.error_code for result in found}
    assert codes == {
        (None, bytes(16)): ErrorCode.INVALID_REQUEST,
        ("a", ids["a"]): ErrorCode.INVALID_REQUEST,
        ("nope", bytes(16)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, uuid(99)): ErrorCode.UNKNOWN_TOPIC_ID,
        ("twice", bytes(16)): ErrorCode.INVALID_REQUEST,
        ("b", ids["b"]): ErrorCode.INVALID_REQUEST,
        (None, ids["c"]): ErrorCode.INVALID_REQUEST,
    }
    assert len(one.log) == end


@pytest.mark.parametrize(
    ("api_version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_is_disabled(api_version: int, code: ErrorCode) -> None:
    cluster = Cluster(static={"delete.topic.enable": "false"})
    cluster.add_brokers(0)
    cluster.create(CreatableTopic("a", 1, 1))
    (result,) = delete(cluster, names=["a"], api_version=api_version)
    assert (result.name, result.error_code) == ("a", code)
    assert cluster.image.topic_names() == ["a"]
