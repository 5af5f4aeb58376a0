"""Every number that a client can set on a running node, at 0, -1 and its limits: rejected, or the node still serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm._engine.config import ConfigKey, config_keys
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.resource_types import ResourceType
from tests.integration.test_config_extremes import ENDS, NO_SERVICE, numbers
from tests.interop.group_peers import Peer
from tests.support.node_process import METADATA, NodeProcess

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

WAIT_S = 30
RECORDS = 3
NO_PRODUCE = {
    ("internal.segment.bytes", "-2147483648"): "RECORD_LIST_TOO_LARGE",
    ("internal.segment.bytes", "-1"): "RECORD_LIST_TOO_LARGE",
    ("internal.segment.bytes", "0"): "RECORD_LIST_TOO_LARGE",
    ("max.message.bytes", "0"): "MSG_SIZE_TOO_LARGE",
    ("message.timestamp.after.max.ms", "0"): "INVALID_TIMESTAMP",
    ("message.timestamp.before.max.ms", "0"): "INVALID_TIMESTAMP",
} | NO_SERVICE
"""The error of a produce to a topic with that value, as with Apache Kafka's brokers."""
NO_CONNECTIONS = {"max.connections", "max.connections.per.ip"}
"""At 0 no client could connect to change it back."""
NOT_DELETED = {"min.insync.replicas": "1", "num.network.threads": "2"}
"""Set to these instead of deleting: eligible leader replicas need the first, the other changes in small steps."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("extremes") / "data") as running:
        yield running
        assert "panicked" not in running.output.read_text()


@pytest.fixture(scope="module")
def admin(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})


def values_of(scope: ConfigScope) -> Iterator[tuple[ConfigKey, str]]:
    for key in config_keys(scope):
        if key.type in ENDS:
            yield from ((key, value) for value in numbers(key))


def complaint_of_service(node: NodeProcess, topic: str, allowed: str | None) -> str | None:
    """What fails of a produce and a fetch; `allowed`: an error that the produce may have."""
    settings = {"bootstrap.servers": node.bootstrap, "log_level": 0}
    errors: list[str] = []
    producer = Producer(settings | {"linger.ms": 0, "message.timeout.ms": WAIT_S * 1000})
    for _ in range(RECORDS):  # one batch each, so that small segments are rolled
        producer.produce(
            topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error.name() if error else "")
        )
        producer.flush(WAIT_S)
    if allowed is not None and set(errors) <= {"", allowed}:
        return None
    if any(errors):
        return f"produce: {' '.join(errors)}"
    consumer = Consumer(settings | {"group.id": "g", "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = consumer.consume(RECORDS, WAIT_S)
        return None if [one.value() for one in found] == [b"x"] * RECORDS else f"fetch: {len(found)}"
    finally:
        consumer.close()


def test_numbers_of_topics(node: NodeProcess, admin: AdminClient) -> None:
    complaints: list[str] = []
    for number, (key, value) in enumerate(values_of("topic")):
        topic = f"t{number}"
        complaint: str | None
        try:
            admin.create_topics([NewTopic(topic, 1, 1, config={key.name: value})])[topic].result(WAIT_S)
        except KafkaException as error:
            complaint = None if key.name in str(error) else str(error)
        else:
            complaint = complaint_of_service(node, topic, NO_PRODUCE.get((key.name, value)))
        if complaint is not None:
            complaints.append(f"{key.name}={value}: {complaint}")
        assert node.is_running, complaints
    assert complaints == []


def refused_change(peer: Peer, kind: ResourceType, name: str, key: str, value: str | None) -> str | None:
    """The broker's error for that change (None as the value: delete the config); None if it is accepted."""
    change = AlterableConfig(key, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
    peer.send("admin", IncrementalAlterConfigsRequest((AlterConfigsResource(kind, name, (change,)),)), 1)
    (answer,) = peer.receive("admin", IncrementalAlterConfigsResponse, 1).responses
    return None if answer.error_code == ErrorCode.NONE else f"{answer.error_code!r} {answer.error_message}"


@pytest.mark.parametrize("name", ["", "1"], ids=["cluster-wide", "of the broker"])
def test_numbers_of_brokers(node: NodeProcess, admin: AdminClient, name: str) -> None:
    topic = f"of-{name or 'all'}"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    peer, complaints = Peer(node.bootstrap), []
    for key, value in values_of("node"):
        if key.update_mode == "read-only" or (key.name in NO_CONNECTIONS and value == "0"):
            continue
        complaint = refused_change(peer, ResourceType.BROKER, name, key.name, value)
        if complaint is None:
            complaint = complaint_of_service(node, topic, NO_PRODUCE.get((key.name, value)))
            back = NOT_DELETED.get(key.name)
            complaint = complaint or refused_change(peer, ResourceType.BROKER, name, key.name, back)
        elif key.name in complaint:
            continue
        if complaint is not None:
            complaints.append(f"{key.name}={value}: {complaint}")
        assert node.is_running, complaints
    assert complaints == []


SCOPES: dict[ConfigScope, ResourceType] = {
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}


@pytest.mark.parametrize("scope", SCOPES)
def test_numbers_of_groups_and_client_metrics(node: NodeProcess, scope: ConfigScope) -> None:
    peer = Peer(node.bootstrap)
    for key, value in values_of(scope):
        refused = refused_change(peer, SCOPES[scope], "any", key.name, value)
        assert refused is None or key.name in refused, f"{key.name}={value}"
    assert node.answers(METADATA)
