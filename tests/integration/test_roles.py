"""A controller and a broker in their own processes, in a dynamic quorum with one voter."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client.peer import PeerConfig, Peers
from klamm.config.rules import checked
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from klamm.node.node import Node, NodeFailedError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from klamm.protocol.messages.feature_updates import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.node_process import VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.waiting import until

BOUND_S = 60
CONTROLLERS = 2


def storage(node: FileNode, cluster_id: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", "storage", "format", "-c", str(node.file), "-t", cluster_id, *options]
    return subprocess.run(command, check=False, timeout=BOUND_S, capture_output=True, text=True)


async def test_a_broker_finds_its_controller_by_a_bootstrap_server(tmp_path: Path) -> None:
    ports, cluster_id = (free_port(), free_port()), random_cluster_id()
    common = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports[0]}",
        "offsets.topic.replication.factor": "1",
    }
    listeners = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{ports[0]}"}
    controller = FileNode(tmp_path, 7, ports[0], {**common, **listeners})
    listeners = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{ports[1]}"}
    broker = FileNode(tmp_path, 1, ports[1], {**common, **listeners})
    # The first voters are not specified.
    refused = storage(controller, cluster_id)
    assert refused.returncode == 1
    assert "give --standalone, --initial-controllers or --no-initial-controllers" in refused.stderr
    # A broker cannot be a voter.
    refused = storage(broker, cluster_id, "--standalone")
    assert refused.returncode == 1
    assert "--standalone is for a controller" in refused.stderr
    assert storage(controller, cluster_id, "--standalone").returncode == 0
    assert storage(broker, cluster_id).returncode == 0
    client = Peers(PeerConfig("test"))
    try:
        controller.start(request=VERSIONS)
        broker.start(request=VERSIONS)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("a", 1, 1)], request_timeout=BOUND_S)["a"].result(BOUND_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("a", "one")
        assert producer.flush(BOUND_S) == 0
        update = UpdateFeaturesRequest((FeatureUpdateKey("streams.version", 1),))
        answer = await client.ask((HOST, ports[1]), update, UpdateFeaturesResponse, (1, 2), 1000 * BOUND_S)
        assert answer.error_code is ErrorCode.NONE
        # A controller listener describes controllers, a broker listener brokers (KIP-919).
        asked = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        described = await client.ask((HOST, ports[0]), asked, DescribeClusterResponse, (1, 2))
        assert [(node.broker_id, node.port) for node in described.brokers] == [(7, ports[0])]
        assert (described.controller_id, described.cluster_id) == (7, cluster_id)
        described = await client.ask((HOST, ports[1]), asked, DescribeClusterResponse, (1, 2))
        assert described.error_code is ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert broker.stop() == 0
        assert controller.stop() == 0
        assert f"listening   {HOST}:{ports[0]} (controller)" in controller.log()
    finally:
        client.close()
        broker.kill()
        controller.kill()


async def test_a_broker_of_another_cluster_is_refused_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    common = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"2@{HOST}:{port}"}
    of_controller = {"process.roles": "controller", "node.id": "2", "listeners": f"CONTROLLER://{HOST}:{port}"}
    of_broker = {"process.roles": "broker", "node.id": "1", "listeners": f"PLAINTEXT://{HOST}:0"}
    configs = [
        checked(common | own | {"log.dirs": str(tmp_path / own["node.id"])}) for own in (of_controller, of_broker)
    ]
    ids = [random_cluster_id(), random_cluster_id()]
    for config, cluster_id in zip(configs, ids, strict=True):
        format_storage(config, FormatRequest(cluster_id, is_volatile=True))
    controller, broker = (Node(config, is_volatile=True) for config in configs)
    await controller.start()
    starting = asyncio.create_task(broker.start())

    def said() -> list[str]:
        # A client of an earlier test in this process may still try to connect to its broker.
        ours = (record for record in caplog.records if record.name.startswith("klamm"))
        return [record.getMessage() for record in ours if record.levelname == "ERROR"]

    await until(lambda: bool(said()))
    assert said()[0].startswith(f"node at {HOST}:{port} belongs to another cluster (INCONSISTENT_CLUSTER_ID): ")
    assert f"formatted for cluster.id {ids[1]}," in said()[0]
    assert broker.metadata.foreign_cluster() == said()[0]
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await controller.stop()
    assert len(said()) == 1


async def test_a_broker_that_cannot_register_reports_it_and_cleans_up(tmp_path: Path) -> None:
    given = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"2@{HOST}:{free_port()}",
        "log.dirs": str(tmp_path / "data"),
        "broker.heartbeat.interval.ms": "50",
        "initial.broker.registration.timeout.ms": "200",
    }
    config = checked(given)
    format_storage(config, FormatRequest(random_cluster_id(), is_volatile=True))
    for _ in range(2):
        with pytest.raises(NodeFailedError, match=r"no controller registered this broker within 200 ms \(initial"):
            await Node(config, is_volatile=True).start()
