"""A broker of one system with controllers of the other: it registers, follows the metadata, and forwards requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import klamm
from klamm.config.rules import checked
from klamm.config.sources import read_file
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from tests.interop.apache_kafka import KafkaNode, Tools
from tests.support import foreign
from tests.support.node_process import METADATA, VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.waiting import wait_until

BOUND_S = 60
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _kafka() -> None:
    foreign.require("java", "mvn")


def properties(role: str, node_id: int, port: int, controllers: dict[int, int]) -> dict[str, str]:
    name = "PLAINTEXT" if role == "broker" else "CONTROLLER"
    return {
        "process.roles": role,
        "node.id": str(node_id),
        "listeners": f"{name}://{HOST}:{port}",
        "advertised.listeners": f"{name}://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{each}@{HOST}:{where}" for each, where in controllers.items()),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


def use(bootstrap: str) -> AdminClient:
    """A client sends requests of which some are served by the broker and some by the controller."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("a", 1, 1), NewTopic("gone", 1, 1)], request_timeout=BOUND_S)["a"].result(BOUND_S)
    admin.create_partitions([NewPartitions("a", 2)], request_timeout=BOUND_S)["a"].result(BOUND_S)
    admin.delete_topics(["gone"], request_timeout=BOUND_S)["gone"].result(BOUND_S)
    change = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "a", incremental_configs=[change])
    admin.incremental_alter_configs([resource], request_timeout=BOUND_S)[resource].result(BOUND_S)
    with pytest.raises(Exception, match="already exists"):
        admin.create_topics([NewTopic("a", 1, 1)], request_timeout=BOUND_S)["a"].result(BOUND_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("a", "one")
    assert producer.flush(BOUND_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["a"])
    found = consumer.poll(BOUND_S)
    assert found is not None
    assert found.value() == b"one"
    consumer.close()
    wait_until(lambda: set(admin.list_topics(timeout=BOUND_S).topics) >= {"a"}, bound_s=BOUND_S)
    return admin


def retention(admin: AdminClient) -> str:
    resource = ConfigResource(ResourceType.TOPIC, "a")
    found: Callable[[], dict[str, ConfigEntry]] = admin.describe_configs([resource])[resource].result
    return str(found()["retention.ms"].value)


def test_an_apache_kafka_broker_with_controllers_of_klamm(tools: Tools, tmp_path: Path) -> None:
    cluster_id = random_cluster_id()
    ports = {each: free_port() for each in (2, 3, 4)}
    nodes = {
        each: FileNode(tmp_path, each, port, properties("controller", each, port, ports))
        for each, port in ports.items()
    }
    broker = KafkaNode(tmp_path / "java")
    broker.settings = properties("broker", 1, broker.port, ports) | {"log.dirs": str(broker.data)}
    try:
        for node in nodes.values():
            node.format(cluster_id)
            node.launch()
        broker.format(cluster_id)
        with broker:
            admin = use(broker.bootstrap)
            described = tools(
                "metadata-quorum", "--bootstrap-controller", f"{HOST}:{ports[2]}", "describe", "--status"
            ).stdout
            [leader] = [int(line.split()[-1]) for line in described.splitlines() if line.startswith("LeaderId:")]
            nodes[leader].kill()
            admin.create_topics([NewTopic("b", 1, 1)], request_timeout=BOUND_S)["b"].result(BOUND_S)
            wait_until(lambda: "b" in admin.list_topics(timeout=BOUND_S).topics, bound_s=BOUND_S)
            assert retention(admin) == "12345"
    finally:
        for node in nodes.values():
            node.kill()


def test_a_broker_of_klamm_with_a_controller_of_apache_kafka(tmp_path: Path) -> None:
    cluster_id = random_cluster_id()
    controller = KafkaNode(tmp_path / "java", node_id=2)
    ports = {2: controller.port}
    controller.settings = properties("controller", 2, controller.port, ports) | {"log.dirs": str(controller.data)}
    controller.format(cluster_id)
    port = free_port()
    broker = FileNode(tmp_path, 1, port, properties("broker", 1, port, ports))
    format_storage(checked(read_file(broker.file)), FormatRequest(cluster_id))
    with controller:
        broker.start(timeout_s=BOUND_S, request=VERSIONS)
        try:
            admin = use(broker.bootstrap)
            assert retention(admin) == "12345"
            assert broker.stop() == 0
            # After its restart it gives the same response.
            broker.start(timeout_s=BOUND_S, request=METADATA)
            assert retention(admin) == "12345"
        finally:
            broker.kill()


def test_apache_kafkas_tools_connect_to_controllers(tools: Tools) -> None:
    """KIP-919: any controller lists the others, and forwards requests to the active one."""
    with klamm.Cluster(controllers=3) as cluster:
        wait_until(lambda: len(cluster.registered_controllers()) == 3, bound_s=BOUND_S)
        addresses = {one.id: one.address for one in cluster.controllers}
        at = "--bootstrap-controller", next(one.address for one in cluster.controllers if not one.is_active)
        listed = tools("cluster", "list-endpoints", *at).stdout
        rows = [line.split() for line in listed.splitlines() if line.split()[-1:] == ["controller"]]
        assert {int(node): f"{host}:{port}" for node, host, port, *_ in rows} == addresses
        assert "upgraded to 1" in tools("features", *at, "upgrade", "--feature", "streams.version=1").stdout
        added = "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "log.cleaner.threads=2"
        assert "Completed" in tools("configs", *at, *added).stdout
        # Sent to a broker, which forwards it in an envelope.
        unknown = "unregister", "--bootstrap-server", cluster.bootstrap_servers, "--id", "77"
        assert "BrokerIdNotRegistered" in tools("cluster", *unknown, check=False).stderr
