"""Client quotas with the controller in another process than the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klamm.formats.storage import random_cluster_id
from klamm.protocol.api_key import ApiKey
from tests.integration.test_roles import storage
from tests.interop.peers import Peer
from tests.support.node_process import VERSIONS
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.waiting import wait_until


def test_a_forwarded_change_is_charged_to_the_client(tmp_path: Path) -> None:
    """The broker mutes the client's connection, not its own to the controller."""
    ports, cluster_id = (free_port(), free_port()), random_cluster_id()
    common = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports[0]}",
    }
    listeners = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{ports[0]}"}
    controller = FileNode(tmp_path, 7, ports[0], {**common, **listeners})
    listeners = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{ports[1]}"}
    broker = FileNode(tmp_path, 1, ports[1], {**common, **listeners})
    assert storage(controller, cluster_id, "--standalone").returncode == 0
    assert storage(broker, cluster_id).returncode == 0
    try:
        controller.start(request=VERSIONS)
        broker.start(request=VERSIONS)
        charge_two_clients(ports[1])
        assert broker.stop() == 0
        assert controller.stop() == 0
    finally:
        broker.kill()
        controller.kill()


def charge_two_clients(port: int) -> None:
    def create(client_id: str, name: str, partitions: int) -> dict[str, Any]:
        """Create a topic on a new connection."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        peer = Peer(port, client_id.encode())
        return peer.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000})

    admin = Peer(port, b"admin")
    entity = [{"entity_type": "client-id", "entity_name": "limited"}]
    ops = [{"key": "controller_mutation_rate", "value": 1.0, "remove": False}]
    altered = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [{"entity": entity, "ops": ops}]})
    assert altered["entries"][0]["error_code"] == "NONE"
    wait_until(lambda: admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": []})["entries"])
    wait_until(lambda: create("admin", "first", 1)["topics"][0]["error_code"] in {"NONE", "TOPIC_ALREADY_EXISTS"})
    assert create("limited", "a", 100)["topics"][0]["error_code"] == "NONE"
    refused = create("limited", "b", 1)
    assert refused["topics"][0]["error_code"] == "THROTTLING_QUOTA_EXCEEDED"
    assert 30_000 < refused["throttle_time"] <= 89_000
    for name in ("c", "d"):
        served = create("unlimited", name, 1)
        assert (served["topics"][0]["error_code"], served["throttle_time"]) == ("NONE", 0)
