"""The keys of Java's clients, which a job for Spark's own connector may contain."""

from __future__ import annotations

import pickle

import pytest
from tests.support.foreign import require_package

from klamm._engine.client import KafkaClient
from klamm._engine.config import ConfigError
from klamm.spark.options.client_options import client_options, producer_options, without_effect

CONSUMER = [
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
]
CONSUMER_REFUSED = [
    "auto.offset.reset",
    "enable.auto.commit",
    "interceptor.classes",
    "key.deserializer",
    "value.deserializer",
]
PRODUCER = [
    "acks",
    "batch.size",
    "buffer.memory",
    "client.dns.lookup",
    "client.id",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "enable.idempotence",
    "enable.metrics.push",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    "transaction.timeout.ms",
]
PRODUCER_REFUSED = ["key.serializer", "value.serializer", "transactional.id", "interceptor.classes"]


def is_known_to_the_client(key: str) -> bool:
    try:
        KafkaClient("localhost:9092", {key: "no value of any key"}).close()
    except ConfigError as error:
        return "is not a configuration of" not in str(error)
    return True


@pytest.mark.parametrize("key", CONSUMER)
def test_a_key_of_the_consumer_is_used_or_ignored(key: str) -> None:
    assert all(map(is_known_to_the_client, client_options({key: "1"}).keys()))


@pytest.mark.parametrize("key", PRODUCER)
def test_a_key_of_the_producer_is_used_or_ignored(key: str) -> None:
    assert all(map(is_known_to_the_client, producer_options({key: "1"}).keys()))


def test_unsupported_values_are_rejected() -> None:
    for key in CONSUMER_REFUSED:
        with pytest.raises(ValueError, match=rf"option 'kafka\.{key}' \('1'\) is not supported: "):
            client_options({key: "1"})
    for key in PRODUCER_REFUSED:
        with pytest.raises(ValueError, match=rf"option 'kafka\.{key}' \('1'\) is not supported: "):
            producer_options({key: "1"})


def test_keys_without_effect_are_known() -> None:
    given = dict.fromkeys(["max.poll.records", "linger.ms", "fetch.min.bytes", "bootstrap.servers"], "1")
    assert without_effect(given, is_sink=False) == ["linger.ms", "max.poll.records"]
    assert without_effect(given, is_sink=True) == ["fetch.min.bytes", "max.poll.records"]


def test_options_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    require_package("pyspark")
    from pyspark.sql.types import BinaryType, StructType

    from klamm.spark import KlammDataSource

    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.max.poll.records": "5"}
    source = KlammDataSource(given)
    source.schema()
    again = pickle.loads(pickle.dumps(source))  # as Spark sends it to the process that plans
    again.schema()
    again.reader(StructType().add("value", BinaryType()))
    assert caplog.messages == ["these options have no effect for klamm's Spark source: kafka.max.poll.records"]
