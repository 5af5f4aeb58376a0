"""Admin calls of librdkafka: validate-only changes nothing, and errors give the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

Name = Callable[[str], str]


def refusal(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result()
    code: int = caught.value.args[0].code()
    return code


def change(topic: str, key: str, value: str) -> ConfigResource:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])


def test_validate_only_changes_nothing(admin: AdminClient, topic: str, name: Name) -> None:
    absent = name("absent")
    admin.create_topics([NewTopic(absent, 3, 1)], validate_only=True)[absent].result()
    admin.create_partitions([NewPartitions(topic, 5)], validate_only=True)[topic].result()
    wish = change(topic, "retention.ms", "1000")
    admin.incremental_alter_configs([wish], validate_only=True)[wish].result()
    topics = admin.list_topics(timeout=60).topics
    assert absent not in topics
    assert len(topics[topic].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result()["retention.ms"].value == "604800000"


def test_validate_only_rejects_invalid_changes(admin: AdminClient, topic: str) -> None:
    again = admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic]
    assert refusal(again) == KafkaError.TOPIC_ALREADY_EXISTS
    fewer = admin.create_partitions([NewPartitions(topic, 1)], validate_only=True)[topic]
    assert refusal(fewer) == KafkaError.INVALID_PARTITIONS
    wish = change(topic, "retention.ms", "soon")
    assert refusal(admin.incremental_alter_configs([wish], validate_only=True)[wish]) == KafkaError.INVALID_CONFIG


def test_unknown_resources_have_their_errors(admin: AdminClient, name: Name) -> None:
    absent = name("absent")
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(admin.create_partitions([NewPartitions(absent, 2)])[absent]) == unknown
    assert refusal(admin.describe_topics(TopicCollection([absent]))[absent]) == unknown
    resource = ConfigResource(ResourceType.TOPIC, absent)
    assert refusal(admin.describe_configs([resource])[resource]) == unknown
    wish = change(absent, "retention.ms", "1000")
    assert refusal(admin.incremental_alter_configs([wish])[wish]) == unknown
    assert absent not in admin.list_topics(timeout=60).topics, "asking admins create nothing"


def test_topics_are_described_by_leader_and_replicas(admin: AdminClient, topic: str) -> None:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result()
    assert (described.name, described.is_internal) == (topic, False)
    [partition] = described.partitions
    assert (partition.id, partition.leader.id) == (0, 1)
    assert [node.id for node in partition.replicas] == [node.id for node in partition.isr] == [1]


def test_an_unneeded_election_has_its_error(admin: AdminClient, topic: str, name: Name) -> None:
    asked = [TopicPartition(topic, 0), TopicPartition(name("absent"), 0)]
    found = admin.elect_leaders(ElectionType.PREFERRED, asked).result()
    codes = {one.topic: None if error is None else error.code() for one, error in found.items()}
    assert codes == {topic: KafkaError.ELECTION_NOT_NEEDED, asked[1].topic: KafkaError.UNKNOWN_TOPIC_OR_PART}
