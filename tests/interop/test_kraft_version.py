"""A kraft.version that klamm upgraded is understood by Apache Kafka, and still by klamm afterwards."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import klamm
from klamm.protocol.errors import ErrorCode
from tests.integration.test_kraft_version import UPGRADE, finalized, update
from tests.interop.apache_kafka import KafkaNode, Tools
from tests.support.controller_processes import Controller
from tests.support.foreign import require
from tests.support.mixed_quorum import EAGER, PATIENT, MixedQuorum
from tests.support.ports import free_port
from tests.support.waiting import wait_until


def test_apache_kafka_takes_over_an_upgraded_directory(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    with klamm.Cluster(data) as cluster:
        cluster.create_topic("before")
        assert update(cluster.bootstrap_servers, 1, UPGRADE) is ErrorCode.NONE
        cluster.create_topic("after")
    node = KafkaNode(data)
    try:
        node.start()
        assert finalized(node.bootstrap) == 1
        topics = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
        assert {"before", "after"} <= topics.keys()
    finally:
        node.stop()
    with klamm.Cluster(data) as cluster:
        assert finalized(cluster.bootstrap_servers) == 1
        assert cluster.topics() == ["after", "before"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("leads", [1, 3], ids=["Apache Kafka leads", "klamm leads"])
def test_a_mixed_quorum_upgrades_and_its_voters_change(tools: Tools, tmp_path: Path, leads: int) -> None:
    """Static voters, two of klamm and one of Apache Kafka; a fourth of klamm joins, and the leader is removed."""
    overrides = {node_id: EAGER if node_id == leads else PATIENT for node_id in (1, 2, 3)}
    with contextlib.closing(MixedQuorum(tmp_path, [1], overrides)) as quorum:
        for node_id in quorum.controllers:
            quorum.launch(node_id)
        ports = [one.port for one in quorum.controllers.values()]
        quorum.leader()
        quorum.write("before", 1000)
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        at = "--bootstrap-controller", servers
        upgrade = "upgrade", "--feature", "kraft.version=1"
        wait_until(lambda: tools("features", *at, *upgrade, "--dry-run", check=False).returncode == 0, bound_s=60)
        assert "kraft.version was upgraded to 1" in tools("features", *at, *upgrade).stdout
        for port in ports:
            wait_until(lambda port=port: finalized(f"127.0.0.1:{port}") == 1, bound_s=60)  # type: ignore[misc]

        fourth = Controller(tmp_path / "c4", 4, "", free_port(), PATIENT)
        fourth.become_dynamic(servers)
        fourth.format(quorum.cluster_id, no_initial_controllers=True)
        quorum.controllers[4] = fourth
        fourth.launch()
        wait_until(lambda: 4 in {one.replica_id for one in quorum.leader()[1].observers}, bound_s=60)
        add = *at, "--command-config", str(fourth.properties), "add-controller"
        # Retried while Apache Kafka's leader finds that it lags.
        wait_until(lambda: "Added controller 4" in tools("metadata-quorum", *add, check=False).stdout, bound_s=120)

        leader, described = quorum.leader()
        assert {one.replica_id for one in described.current_voters} == {1, 2, 3, 4}
        assert described.observers == ()
        status = tools("metadata-quorum", *at, "describe", "--status").stdout
        voters = next(line for line in status.splitlines() if line.startswith("CurrentVoters:")).partition(":")[2]
        directory = next(one["directoryId"] for one in json.loads(voters) if one["id"] == leader.id)
        who = "--controller-id", str(leader.id), "--controller-directory-id", directory
        assert "Removed" in tools("metadata-quorum", *at, "remove-controller", *who).stdout
        rest = [node_id for node_id in (1, 2, 3, 4) if node_id != leader.id]
        wait_until(lambda: {one.replica_id for one in quorum.leader(rest)[1].current_voters} == set(rest), bound_s=60)
        quorum.write("after", 2000, rest)
        for node_id in rest:
            quorum.wait_for(node_id, {"before": 1000, "after": 2000})
