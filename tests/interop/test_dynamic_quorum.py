"""Apache Kafka's own tool changes the voters of a klamm quorum; a controller of Apache Kafka joins it."""

import pytest

from klamm.config.rules import checked
from klamm.config.sources import read_file
from klamm.formats.storage import FormatRequest, format_storage
from tests.interop import apache_kafka
from tests.support import foreign
from tests.support.dynamic_quorum import DynamicQuorum

pytestmark = pytest.mark.timeout(300)


def test_apache_kafkas_tool_and_controller_in_a_quorum_of_klamm(tools, tmp_path):
    foreign.require("java", "mvn")
    with DynamicQuorum(tmp_path / "quorum", 3) as quorum:
        quorum.wait_for([1])
        at = ["--bootstrap-controller", f"127.0.0.1:{quorum.controllers[1].port}"]
        quorum.start(2)
        quorum.wait_for_observer(2)
        added = tools("metadata-quorum", *at, "--command-config", str(quorum.controllers[2].file), "add-controller")
        assert "Added controller 2" in added.stdout, added.stdout
        quorum.wait_for([1, 2])

        java = apache_kafka.KafkaNode(quorum.controllers[3].data, node_id=3)
        java.port = quorum.controllers[3].port
        listener = f"CONTROLLER://127.0.0.1:{java.port}"
        java.settings = {
            "process.roles": "controller",
            "node.id": "3",
            "listeners": listener,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": quorum.servers,
            "controller.quorum.auto.join.enable": "true",
            "log.dirs": str(java.data),
        }
        request = FormatRequest(quorum.cluster_id, no_initial_controllers=True)
        format_storage(checked(read_file(quorum.controllers[3].file)), request)
        with java:
            found = quorum.wait_for([1, 2, 3])
            output = tools("metadata-quorum", *at, "describe", "--status").stdout
            assert f"LeaderId:               {found.leader_id}" in output, output
            assert '"id": 3' in output.partition("CurrentVoters:")[2].partition("CurrentObservers:")[0], output

            # Remove the leader itself, so that another voter, perhaps Apache Kafka's, takes over.
            leader = next(one for one in found.voters if one.node_id == found.leader_id)
            directory_id = shown(leader.directory_id)
            removed = tools(
                "metadata-quorum",
                *at,
                "remove-controller",
                "--controller-id",
                str(leader.node_id),
                "--controller-directory-id",
                directory_id,
            )
            assert f"KRaft controller {leader.node_id} with directory id {directory_id}" in removed.stdout, (
                removed.stdout
            )
            rest = [one.node_id for one in found.voters if one is not leader]
            assert quorum.wait_for(rest).leader_id in rest


def shown(directory_id):
    from klamm.protocol.uuids import uuid_text

    return uuid_text(directory_id)
