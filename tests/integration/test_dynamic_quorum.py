"""Voters are added and removed while the controllers, each in its own process, are running (KIP-853, KIP-1186)."""

import json
import shutil

import pytest

from klamm.admin.quorum import QuorumClient
from klamm.cli.main import run
from klamm.client import ClientError
from klamm.formats.storage import random_cluster_id
from klamm.protocol.uuids import uuid_text
from tests.support.dynamic_quorum import DynamicQuorum
from tests.support.quorum_processes import HOST
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def test_controllers_join_and_leave_by_command(tmp_path, capsys):
    with DynamicQuorum(tmp_path / "quorum", 3) as quorum:
        at = ["--bootstrap-controller", quorum.servers]
        assert quorum.wait_for([1]).leader_id == 1
        for node_id in (2, 3):
            quorum.start(node_id)
            quorum.wait_for_observer(node_id)
            assert run(["quorum", "add", str(quorum.controllers[node_id].file), *at]) == 0, capsys.readouterr()
        quorum.wait_for([1, 2, 3])
        capsys.readouterr()
        assert run(["quorum", "status", "--json", *at]) == 0
        status = json.loads(capsys.readouterr().out)
        assert [one["id"] for one in status["currentVoters"]] == [1, 2, 3]
        assert all(one["endpoints"][0].startswith("CONTROLLER://") for one in status["currentVoters"])

        assert run(["quorum", "remove", "3", "--yes", *at]) == 0, capsys.readouterr()
        quorum.wait_for([1, 2])
        assert run(["quorum", "remove", "1", "--yes", *at]) == 0, capsys.readouterr()
        assert quorum.wait_for([2]).leader_id == 2
        assert run(["quorum", "remove", "2", "--yes", *at]) == 1
        assert "VOTER_NOT_FOUND" in capsys.readouterr().err


def test_controllers_join_and_leave_through_a_broker(tmp_path, capsys):
    with DynamicQuorum(tmp_path / "quorum", 2) as quorum:
        quorum.start_broker()
        at = ["--bootstrap-server", quorum.broker.bootstrap]
        quorum.start(2)
        quorum.wait_for_observer(2)
        assert run(["quorum", "add", str(quorum.controllers[2].file), *at]) == 0, capsys.readouterr()
        voters = quorum.wait_for([1, 2]).voters
        # The active controller's error message is passed on.
        with QuorumClient(quorum.broker.bootstrap, is_controller=False) as client:
            with pytest.raises(ClientError, match="DUPLICATE_VOTER"):
                client.add(2, voters[1].directory_id, voters[1].endpoints)
            with pytest.raises(ClientError, match="VOTER_NOT_FOUND"):
                client.remove(3, voters[1].directory_id)
        # The leader removes itself: the broker then finds the next leader.
        assert run(["quorum", "remove", "1", "--yes", *at]) == 0, capsys.readouterr()
        assert quorum.wait_for([2]).leader_id == 2
        capsys.readouterr()
        assert run(["quorum", "status", "--json", *at]) == 0
        assert [one["id"] for one in json.loads(capsys.readouterr().out)["currentVoters"]] == [2]


def test_controllers_join_automatically_also_with_a_new_disk(tmp_path):
    with DynamicQuorum(tmp_path / "quorum", 3, auto_join=[2, 3]) as quorum:
        quorum.start(2)
        quorum.wait_for([1, 2])
        quorum.start(3)
        before = quorum.wait_for([1, 2, 3]).voters[2].directory_id
        quorum.controllers[3].kill()
        shutil.rmtree(quorum.controllers[3].data)
        quorum.start(3)

        def has_replaced_it():
            found = quorum.describe()
            return found is not None and [v.node_id for v in found.voters if v.directory_id != before] == [1, 2, 3]

        wait_until(has_replaced_it, bound_s=60)


def test_three_controllers_start_with_initial_controllers(tmp_path):
    quorum = DynamicQuorum(tmp_path / "quorum", 3)
    directories = {node_id: random_cluster_id() for node_id in quorum.controllers}
    voters = ",".join(
        f"{node_id}@{HOST}:{node.port}:{directories[node_id]}" for node_id, node in quorum.controllers.items()
    )
    for node in quorum.controllers.values():
        command = ["storage", "format", "-c", str(node.file), "-t", quorum.cluster_id, "--initial-controllers", voters]
        assert run(command) == 0
    with quorum:
        quorum.start(2)
        first = quorum.wait_for([1, 2, 3])
        quorum.start(3)
        assert [uuid_text(voter.directory_id) for voter in first.voters] == list(directories.values())
        quorum.controllers[first.leader_id].kill()
        wait_until(lambda: (found := quorum.describe()) is not None and found.leader_id != first.leader_id, bound_s=60)
        assert [voter.node_id for voter in quorum.wait_for([1, 2, 3]).voters] == [1, 2, 3]
