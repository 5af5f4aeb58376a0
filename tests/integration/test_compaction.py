"""Compaction in a running node: which records remain, also for readers, after a crash, and after a policy change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

SMALL = {"internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
COMPACT = SMALL | {"cleanup.policy": "compact"}
KEYS = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    overrides = {"log.cleaner.backoff.ms": "20"}
    with NodeProcess(tmp_path_factory.mktemp("compaction") / "data", overrides=overrides) as running:
        yield running


def create(node: NodeProcess, topic: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))])[topic].result(30)


def set_config(node: NodeProcess, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def write(
    node: NodeProcess,
    topic: str,
    count: int,
    value: Callable[[int], str | None] = "value {}".format,
    key: Callable[[int], str] = "k{}".format,
) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, key=key(number % KEYS), value=value(number))
        assert producer.flush(30) == 0


def read(node: NodeProcess, topic: str) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record, fetched one at a time."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings | {"enable.partition.eof": True, "fetch.message.max.bytes": 300})
    where = TopicPartition(topic, 0, OFFSET_BEGINNING)
    consumer.assign([where])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                if message.offset() == consumer.get_watermark_offsets(where, timeout=30)[1]:
                    return
                continue  # the end of the log when the client reached it
            yield message.offset() or 0, message.key(), message.value()
        raise AssertionError("the end was not reached")
    finally:
        consumer.close()


def clean_up_to(node: NodeProcess, topic: str) -> int:
    """The offset in the checkpoint, which has Apache Kafka's format."""
    checkpoint = node.data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[:2] == [topic, "0"]), -1)


def test_the_newest_record_of_each_key_remains_also_for_readers(node: NodeProcess) -> None:
    create(node, "read", COMPACT)
    write(node, "read", 200)
    reader = read(node, "read")
    seen = [next(reader)]
    write(node, "read", 200, "newer {}".format)
    wait_until(lambda: clean_up_to(node, "read") > 300, "not cleaned")
    seen += reader
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets))
    newest = {f"k{number % KEYS}".encode(): f"newer {number}".encode() for number in range(200)}
    assert {key: value for _, key, value in seen} == newest
    left = list(read(node, "read"))
    assert len(left) < 150
    assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
    assert {key: value for _, key, value in left} == newest


def test_tombstones_are_removed_after_their_horizon(node: NodeProcess) -> None:
    for topic, keep_ms in (("gone", "0"), ("kept", "86400000")):
        create(node, topic, COMPACT | {"delete.retention.ms": keep_ms})
        write(node, topic, 40, lambda number: None if number >= KEYS else "some value", key="dead {}".format)

    def dead(topic: str) -> dict[bytes | None, bytes | None]:
        return {key: value for _, key, value in read(node, topic) if key is not None and key.startswith(b"dead")}

    def are_gone() -> bool:
        # The first round sets the delete horizon of tombstones, a later one removes them.
        write(node, "gone", KEYS)
        return not dead("gone")

    wait_until(are_gone, "the tombstones stay")
    write(node, "kept", 60)
    wait_until(lambda: clean_up_to(node, "kept") > 60, "not cleaned")
    assert dead("kept") == {f"dead {number}".encode(): None for number in range(KEYS)}


def test_compact_and_delete_drops_old_segments_in_the_cleaner(node: NodeProcess) -> None:
    create(node, "both", COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": "60000"})
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for number in range(60):
        producer.produce("both", key=f"old {number}", value="x" * 60, timestamp=1_600_000_000_000)
        assert producer.flush(30) == 0
    write(node, "both", 60)
    # The node's own retention runs only every 5 minutes.
    wait_until(lambda: next(read(node, "both"))[0] > 30, "nothing is dropped")
    assert {key for _, key, value in read(node, "both") if value} >= {f"k{number}".encode() for number in range(KEYS)}


def test_a_maximum_lag_compacts_records_of_the_active_segment(node: NodeProcess) -> None:
    own = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1", "min.cleanable.dirty.ratio": "0.99"}
    create(node, "lag", own)

    def compacted() -> bool:
        write(node, "lag", KEYS)
        return clean_up_to(node, "lag") > 0

    wait_until(compacted, "never compacted")


def test_another_policy_and_a_crash_lose_no_record(tmp_path: Path) -> None:
    """Gaps left by compaction are not damage, whatever the topic's policy is when the log is recovered."""
    node = NodeProcess(tmp_path / "data", overrides={"log.cleaner.backoff.ms": "20"})
    with node:
        create(node, "t", COMPACT)
        write(node, "t", 200)
        wait_until(lambda: clean_up_to(node, "t") > 150, "not cleaned")
        set_config(node, "t", "cleanup.policy", "delete")
        before = list(read(node, "t"))
        assert before[-1][0] == 199
        node.kill()
        node.start()
        assert list(read(node, "t")) == before
