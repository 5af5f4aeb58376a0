"""Configs that change while the node runs, as AdminClients change them (KIP-226, KIP-412)."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

import klamm
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from klamm.protocol.resource_types import ResourceType
from tests.interop.group_peers import Peer
from tests.support.ports import free_port
from tests.support.waiting import wait_until

BROKER, LOGGER = ResourceType.BROKER, ResourceType.BROKER_LOGGER
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
LEAF = "klamm.node.registration"
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as cluster:
        cluster.create_topic("t")
        yield cluster


@pytest.fixture
def peer(cluster: klamm.Cluster) -> Peer:
    return Peer(cluster.bootstrap_servers)


def alter(peer: Peer, kind: ResourceType, name: str, *changes: tuple[str, str | None, ConfigOperation]) -> ErrorCode:
    configs = tuple(AlterableConfig(*change) for change in changes)
    peer.send("admin", IncrementalAlterConfigsRequest((AlterConfigsResource(kind, name, configs),)), 1)
    (answer,) = peer.receive("admin", IncrementalAlterConfigsResponse, 1).responses
    code: ErrorCode = answer.error_code
    return code


def is_served(cluster: klamm.Cluster) -> bool:
    """Whether a new connection gets a response; a rejected one is closed."""
    host, port = cluster.bootstrap_servers.split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        try:
            connection.sendall(API_VERSIONS)
            return connection.recv(4) != b""
        except ConnectionResetError:
            return False


@pytest.mark.parametrize("name", ["", "1"])
def test_connection_limits_change_at_once(cluster: klamm.Cluster, peer: Peer, name: str) -> None:
    assert alter(peer, BROKER, name, ("max.connections.per.ip", "1", SET)) is ErrorCode.NONE
    wait_until(lambda: not is_served(cluster))
    assert alter(peer, BROKER, name, ("max.connections.per.ip.overrides", "localhost:100", SET)) is ErrorCode.NONE
    wait_until(lambda: is_served(cluster))
    both = [(key, None, DELETE) for key in ("max.connections.per.ip", "max.connections.per.ip.overrides")]
    assert alter(peer, BROKER, name, *both) is ErrorCode.NONE
    wait_until(lambda: is_served(cluster))


def test_the_connection_rate_and_the_cleaner_get_new_values(cluster: klamm.Cluster, peer: Peer) -> None:
    changes = {
        "max.connection.creation.rate": "100",
        "log.cleaner.threads": "2",
        "log.cleaner.io.max.bytes.per.second": "1000000",
        "log.cleaner.dedupe.buffer.size": "33554432",
        "num.recovery.threads.per.data.dir": "4",
        "num.io.threads": "16",
        "num.network.threads": "4",
        "log.segment.delete.delay.ms": "5",
    }
    assert alter(peer, BROKER, "", *((key, value, SET) for key, value in changes.items())) is ErrorCode.NONE
    assert is_served(cluster)
    assert alter(peer, BROKER, "", *((key, None, DELETE) for key in changes)) is ErrorCode.NONE


def test_the_largest_message_size_changes(cluster: klamm.Cluster, peer: Peer) -> None:
    assert alter(peer, BROKER, "", ("message.max.bytes", "100", SET)) is ErrorCode.NONE
    errors = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("t", b"x" * 500, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert alter(peer, BROKER, "", ("message.max.bytes", None, DELETE)) is ErrorCode.NONE
    producer.produce("t", b"x" * 500, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors[1:] == [None]


def test_changes_of_static_keys_are_rejected(peer: Peer) -> None:
    assert alter(peer, BROKER, "1", ("log.dirs", "/elsewhere", SET)) is ErrorCode.INVALID_REQUEST
    assert alter(peer, BROKER, "", ("connections.max.idle.ms", "5", SET)) is ErrorCode.INVALID_REQUEST
    assert alter(peer, BROKER, "", ("max.connections", "many", SET)) is ErrorCode.INVALID_REQUEST
    assert alter(peer, BROKER, "", ("num.io.threads", "100", SET)) is ErrorCode.INVALID_REQUEST


def described(peer: Peer, name: str) -> dict[str, str | None]:
    peer.send("admin", DescribeConfigsRequest((DescribeConfigsResource(LOGGER, name),)), 4)
    (result,) = peer.receive("admin", DescribeConfigsResponse, 4).results
    assert result.error_code is (ErrorCode.NONE if name == "1" else ErrorCode.INVALID_REQUEST)
    assert all(each.config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG for each in result.configs)
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    return {each.name: each.value for each in result.configs}


def test_loggers_are_described_and_changed(peer: Peer) -> None:
    before = described(peer, "1")
    assert {"root", LEAF} <= before.keys()
    assert described(peer, "2") == described(peer, "") == {}
    try:
        assert alter(peer, LOGGER, "1", (LEAF, "FATAL", SET)) is ErrorCode.NONE
        assert described(peer, "1") == before | {LEAF: "FATAL"}
        assert logging.getLogger(LEAF).level == logging.CRITICAL
        assert alter(peer, LOGGER, "1", ("klamm.nobody", "INFO", SET)) is ErrorCode.INVALID_CONFIG
        assert alter(peer, LOGGER, "2", (LEAF, "INFO", SET)) is ErrorCode.INVALID_REQUEST
    finally:
        assert alter(peer, LOGGER, "1", (LEAF, None, DELETE)) is ErrorCode.NONE
    assert described(peer, "1") == before


def test_configs_in_a_snapshot_apply_after_a_restart(tmp_path: Path) -> None:
    data, often = tmp_path / "data", {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with klamm.Cluster(data, config=often) as cluster:
        peer = Peer(cluster.bootstrap_servers)
        assert alter(peer, BROKER, "", ("max.connections.per.ip", "1", SET)) is ErrorCode.NONE
        at, deadline = 0, time.monotonic() + 30
        while not [found for found in data.glob("*/*.checkpoint") if not found.name.startswith("0" * 20)]:
            assert time.monotonic() < deadline, "no snapshot is written"
            at += 1
            topic = CreateTopicsRequest((CreatableTopic(f"t{at}", 1, 1),))
            peer.send("admin", topic, 7)
            assert peer.receive("admin", CreateTopicsResponse, 7).topics[0].error_code is ErrorCode.NONE
    with klamm.Cluster(data, config=often) as cluster:
        peer = Peer(cluster.bootstrap_servers)
        assert "klamm.node" in described(peer, "1")
        assert not is_served(cluster), "the connection that is held is the only one"


@pytest.fixture
def with_extra() -> Iterator[klamm.Cluster]:
    """A node whose protocol map contains one listener more than it has."""
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,SECRET:SSL"
    with klamm.Cluster(config={"listener.security.protocol.map": protocols}) as cluster:
        yield cluster


def is_answered(port: int) -> bool:
    """Whether ApiVersions is answered on that listener."""
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
            connection.sendall(API_VERSIONS)
            return connection.recv(4) != b""
    except OSError:
        return False


def test_listeners_are_added_and_removed(with_extra: klamm.Cluster) -> None:
    peer = Peer(with_extra.bootstrap_servers)
    port = free_port()
    static = f"PLAINTEXT://{with_extra.bootstrap_servers},CONTROLLER://127.0.0.1:0"
    for listeners, code in (
        (f"EXTRA://127.0.0.1:{port},CONTROLLER://127.0.0.1:0", ErrorCode.INVALID_REQUEST),  # no advertised listener
        (f"{static},SECRET://127.0.0.1:{port}", ErrorCode.INVALID_REQUEST),  # not supported yet
        (f"{static},UNKNOWN://127.0.0.1:{port}", ErrorCode.INVALID_REQUEST),
        (f"{static},EXTRA://127.0.0.1", ErrorCode.INVALID_REQUEST),
        (f"{static},EXTRA://127.0.0.1:{port}", ErrorCode.NONE),
    ):
        assert not is_answered(port)
        assert alter(peer, BROKER, "1", ("listeners", listeners, SET)) is code, listeners
    wait_until(lambda: is_answered(port))
    assert alter(peer, BROKER, "1", ("listeners", None, DELETE)) is ErrorCode.NONE
    wait_until(lambda: not is_answered(port))
    assert alter(peer, BROKER, "1", ("num.io.threads", "16", SET)) is ErrorCode.NONE


def test_the_protocols_of_listeners_are_checked(cluster: klamm.Cluster, peer: Peer) -> None:
    key, port = "listener.security.protocol.map", free_port()
    own = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    for protocols in ("", "x", "PLAINTEXT:PLAINTEXT", f"{own},EXTRA:TLS", "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"):
        assert alter(peer, BROKER, "1", (key, protocols, SET)) is ErrorCode.INVALID_REQUEST, protocols
    assert alter(peer, BROKER, "", (key, own, SET)) is ErrorCode.INVALID_REQUEST, "each broker has its own"
    listeners = f"PLAINTEXT://{cluster.bootstrap_servers},CONTROLLER://127.0.0.1:0,EXTRA://127.0.0.1:{port}"
    changes = ((key, f"{own},EXTRA:PLAINTEXT", SET), ("listeners", listeners, SET))
    assert alter(peer, BROKER, "1", *changes) is ErrorCode.NONE
    wait_until(lambda: is_answered(port))
    assert alter(peer, BROKER, "1", (key, own, SET)) is ErrorCode.INVALID_REQUEST, "a listener needs its protocol"


def test_an_added_listener_remains_after_a_restart(tmp_path: Path) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT"
    port = free_port()
    for _ in range(2):
        with klamm.Cluster(tmp_path / "data", config={"listener.security.protocol.map": protocols}) as cluster:
            if not is_answered(port):
                peer = Peer(cluster.bootstrap_servers)
                static = f"PLAINTEXT://{cluster.bootstrap_servers},CONTROLLER://127.0.0.1:0"
                listeners = f"{static},EXTRA://127.0.0.1:{port}"
                assert alter(peer, BROKER, "1", ("listeners", listeners, SET)) is ErrorCode.NONE
                wait_until(lambda: is_answered(port))
        assert not is_answered(port)
    with klamm.Cluster(tmp_path / "data", config={"listener.security.protocol.map": protocols}):
        assert is_answered(port)


def test_the_limit_of_one_listener_changes(cluster: klamm.Cluster, peer: Peer) -> None:
    host, port = cluster.bootstrap_servers.split(":")
    key = "listener.name.plaintext.max.connections"
    assert alter(peer, BROKER, "", (key, "1", SET)) is ErrorCode.NONE

    def is_served_at_once() -> bool:
        with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
            connection.settimeout(0.2)
            try:
                connection.sendall(API_VERSIONS)
                return connection.recv(4) != b""
            except TimeoutError:
                return False

    wait_until(lambda: not is_served_at_once())  # the peer already has the only connection
    assert alter(peer, BROKER, "", (key, None, DELETE)) is ErrorCode.NONE
    wait_until(is_served_at_once)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ResourceType.TOPIC, "t"),
        (BROKER, "1"),
        (BROKER, ""),
        (ResourceType.GROUP, "g"),
        (ResourceType.CLIENT_METRICS, "m"),
    ],
)
def test_every_key_is_described_with_its_documentation(peer: Peer, kind: ResourceType, name: str) -> None:
    change = ("log.cleaner.threads", "2", SET)  # brokers without a name, which means all brokers, have no such key
    assert alter(peer, BROKER, "", change) is ErrorCode.NONE
    resources = (DescribeConfigsResource(kind, name),)
    for is_wanted in (True, False):
        peer.send("admin", DescribeConfigsRequest(resources, include_documentation=is_wanted), 4)
        (result,) = peer.receive("admin", DescribeConfigsResponse, 4).results
        assert result.error_code is ErrorCode.NONE
        assert result.configs
        assert [each.name for each in result.configs if bool(each.documentation) is not is_wanted] == []
    assert alter(peer, BROKER, "", (change[0], None, DELETE)) is ErrorCode.NONE
