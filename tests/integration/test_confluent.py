"""librdkafka through confluent-kafka, the client that checks bytes and error codes most strictly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.moments import HOUR_AGO_MS

Name = Callable[[str], str]


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> list[Message]:
    """Produce and wait for every acknowledgement."""
    acknowledged: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
    assert producer.flush(30) == 0
    return acknowledged


def consume(bootstrap: str, partitions: list[TopicPartition], count: int, **settings: Any) -> list[Message]:
    """`count` records from the offsets in `partitions`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, **settings})
    consumer.assign(partitions)
    found: list[Message] = []
    try:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {count} records came"
            assert message.error() is None, message.error()
            found.append(message)
        return found
    finally:
        consumer.close()


def failure(future: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        future.result()
    error: KafkaError = caught.value.args[0]
    return error


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trips(bootstrap: str, topic: str, codec: str) -> None:
    records = [{"key": f"k{n}", "value": f"value {n} " * 20} for n in range(500)]
    produce(bootstrap, topic, records, **{"compression.type": codec})
    found = consume(bootstrap, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 500)
    assert [(m.key(), m.value()) for m in found] == [(r["key"].encode(), r["value"].encode()) for r in records]
    assert [m.offset() for m in found] == list(range(500))


def test_keys_headers_tombstones_and_timestamps(bootstrap: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
    produce(bootstrap, topic, [{"key": "k", "value": None, "headers": headers, "timestamp": HOUR_AGO_MS + 123}])
    produce(bootstrap, topic, [{"key": None, "value": b""}])
    first, second = consume(bootstrap, [TopicPartition(topic, 0, 0)], 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", None, headers)
    assert first.timestamp()[1] == HOUR_AGO_MS + 123
    assert (second.key(), second.value()) == (None, b"")


def test_a_record_near_the_limit_passes_and_one_above_is_refused(bootstrap: str, topic: str) -> None:
    limits = {"message.max.bytes": 10_000_000}
    produce(bootstrap, topic, [{"value": b"x" * 1_040_000}], **limits)
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, **limits})
    producer.produce(topic, value=b"x" * 1_100_000, on_delivery=lambda error, _: codes.append(error.code()))
    producer.flush(30)
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert len(consume(bootstrap, [TopicPartition(topic, 0, 0)], 1)[0].value()) == 1_040_000


def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    settings = {"enable.idempotence": True, "batch.num.messages": 10}
    produce(bootstrap, topic, [{"value": str(n)} for n in range(1000)], **settings)
    found = consume(bootstrap, [TopicPartition(topic, 0, 0)], 1000)
    assert [int(m.value()) for m in found] == list(range(1000))


def test_acks_zero_and_one(bootstrap: str, topic: str) -> None:
    for acks in ("0", "1"):
        produce(bootstrap, topic, [{"value": acks}], acks=acks)
    assert [m.value() for m in consume(bootstrap, [TopicPartition(topic, 0, 0)], 2)] == [b"0", b"1"]


def test_seek_and_offsets_by_time(bootstrap: str, topic: str, admin: AdminClient) -> None:
    produce(bootstrap, topic, [{"value": str(n), "timestamp": HOUR_AGO_MS + n * 1000} for n in range(100)])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "seeker"})
    try:
        asked = TopicPartition(topic, 0, HOUR_AGO_MS + 41_500)
        assert consumer.offsets_for_times([asked], timeout=60)[0].offset == 42
        late = TopicPartition(topic, 0, HOUR_AGO_MS + 1_000_000_000)
        assert consumer.offsets_for_times([late], timeout=60)[0].offset == OFFSET_END
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 100)
        consumer.assign([TopicPartition(topic, 0, 90)])
        assert consumer.poll(60).value() == b"90"
        consumer.seek(TopicPartition(topic, 0, 7))
        assert consumer.poll(60).value() == b"7"
    finally:
        consumer.close()
    specials = {OffsetSpec.earliest(): 0, OffsetSpec.latest(): 100, OffsetSpec.max_timestamp(): 99}
    for spec, offset in specials.items():
        [future] = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        assert future.result().offset == offset


def test_group_shares_partitions_and_continues_at_its_commits(bootstrap: str, admin: AdminClient, name: Name) -> None:
    topic, group = name("topic"), name("group")
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    produce(bootstrap, topic, [{"value": str(n), "partition": n % 4} for n in range(40)])
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    consumers = [Consumer(settings), Consumer(settings)]
    seen: set[bytes] = set()
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for consumer in consumers:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    seen.add(message.value())
            # One member may have read everything before the other joins: then both read their halves again.
            positions = [consumer.position(consumer.assignment()) for consumer in consumers]
            if all([p.offset for p in own] == [10, 10] for own in positions):
                break
        assert len(seen) == 40
        assert [[p.offset for p in own] for own in positions] == [[10, 10], [10, 10]]
        described = admin.describe_consumer_groups([group])[group].result()
        assert described.state == ConsumerGroupState.STABLE
        assert len(described.members) == 2
        for consumer in consumers:
            consumer.commit(asynchronous=False)
    finally:
        for consumer in consumers:
            consumer.close()
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(4)])
    committed = admin.list_consumer_group_offsets([asked])[group].result()
    assert [p.offset for p in committed.topic_partitions] == [10, 10, 10, 10]
    assert group in {g.group_id for g in admin.list_consumer_groups().result().valid}
    admin.delete_consumer_groups([group])[group].result()
    assert group not in {g.group_id for g in admin.list_consumer_groups().result().valid}


def test_static_member_keeps_its_assignment(bootstrap: str, topic: str, name: Name) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name("group"),
        "group.instance.id": "one",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 10_000,
    }
    produce(bootstrap, topic, [{"value": "a"}])
    for _ in range(2):
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe([topic])
        assert consumer.poll(15).value() == b"a"
        consumer.close()


def test_admin_creates_describes_enlarges_and_deletes(bootstrap: str, admin: AdminClient, name: Name) -> None:
    topic = name("topic")
    dry = admin.create_topics([NewTopic(topic, 3, 1)], validate_only=True)
    dry[topic].result()
    assert topic not in admin.list_topics(timeout=60).topics, "validate_only creates nothing"
    admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "1000"})])[topic].result()
    assert failure(admin.create_topics([NewTopic(topic, 1, 1)])[topic]).code() == KafkaError.TOPIC_ALREADY_EXISTS
    metadata = admin.list_topics(topic, timeout=60).topics[topic]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert all(p.leader == 1 and p.replicas == [1] and p.isrs == [1] for p in metadata.partitions.values())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    assert failure(admin.create_partitions([NewPartitions(topic, 2)])[topic]).code() == KafkaError.INVALID_PARTITIONS
    admin.delete_topics([topic])[topic].result()
    missing = failure(admin.delete_topics([topic])[topic])
    assert missing.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("no-such-key", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-broker", 1, replica_assignment=[[99]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused_topics(admin: AdminClient, bad: NewTopic, code: int) -> None:
    assert failure(admin.create_topics([bad])[bad.topic]).code() == code


def test_configs_with_synonyms_and_sources(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result()
    assert entries["retention.ms"].value == "604800000"
    assert entries["retention.ms"].is_default
    assert len(entries) >= 30
    # Eligible leader replicas need it: a config of the cluster, which a freshly formatted directory has (KIP-966).
    assert entries["min.insync.replicas"].source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([change])[change].result()
    changed = admin.describe_configs([resource])[resource].result()["retention.ms"]
    assert (changed.value, changed.is_default) == ("86400000", False)
    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)],
    )
    assert failure(admin.incremental_alter_configs([wrong])[wrong]).code() == KafkaError.INVALID_CONFIG
    broker = ConfigResource(ResourceType.BROKER, "1")
    settings = admin.describe_configs([broker])[broker].result()
    assert settings["node.id"].value == "1"
    assert len(settings) >= 200


def test_delete_records_moves_the_log_start(bootstrap: str, admin: AdminClient, topic: str) -> None:
    produce(bootstrap, topic, [{"value": str(n)} for n in range(10)])
    [done] = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert done.result().low_watermark == 4
    assert consume(bootstrap, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)[0].offset() == 4
    [late] = admin.delete_records([TopicPartition(topic, 0, 11)]).values()
    assert failure(late).code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_auto_creation(bootstrap: str, name: Name) -> None:
    topic = name("auto")
    produce(bootstrap, topic, [{"value": "made"}])
    assert consume(bootstrap, [TopicPartition(topic, 0, 0)], 1)[0].value() == b"made"


def test_describe_cluster(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(request_timeout=60).result()
    assert cluster.controller.id == 1
    assert [n.id for n in cluster.nodes] == [1]
    assert len(cluster.cluster_id) == 22


def test_reading_past_the_end_resets(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": "only"}])
    settings = {"auto.offset.reset": "earliest"}
    found = consume(bootstrap, [TopicPartition(topic, 0, 1000)], 1, **settings)
    assert found[0].value() == b"only"
