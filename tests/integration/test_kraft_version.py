"""kraft.version is upgraded while the node runs, and is kept (KIP-853)."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

import klamm
from klamm.cli.main import run
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.feature_updates import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from klamm.protocol.wire.codec import build, decode_response, encode, request_class
from tests.interop.group_peers import Peer
from tests.support import controller_processes
from tests.support.controller_processes import Controller
from tests.support.ports import free_port
from tests.support.waiting import wait_until

UPGRADE, DOWNGRADE = 1, 2


def update(bootstrap: str, level: int, how: int, *, validate_only: bool = False) -> ErrorCode:
    peer = Peer(bootstrap)
    request = UpdateFeaturesRequest((FeatureUpdateKey("kraft.version", level, how),), validate_only)
    peer.send("admin", request, 2)
    code: ErrorCode = peer.receive("admin", UpdateFeaturesResponse, 2).error_code
    return code


def finalized(bootstrap: str) -> int:
    """The finalized level in ApiVersions."""
    body = encode(build(request_class(18, 3), client_software_name="test", client_software_version="1"))
    frame = struct.pack(">hhih", 18, 3, 7, -1) + b"\0" + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = decode_response(18, 3, answers.read(struct.unpack(">i", answers.read(4))[0])[4:])
    levels: dict[str, int] = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get("kraft.version", 0)


def test_a_sole_voter_upgrades_and_restarts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klamm.Cluster(data) as cluster:
        assert finalized(cluster.bootstrap_servers) == 0
        assert update(cluster.bootstrap_servers, 1, UPGRADE, validate_only=True) is ErrorCode.NONE
        assert finalized(cluster.bootstrap_servers) == 0
        assert update(cluster.bootstrap_servers, 1, UPGRADE) is ErrorCode.NONE
        assert finalized(cluster.bootstrap_servers) == 1
        assert update(cluster.bootstrap_servers, 1, UPGRADE) is ErrorCode.NONE
        assert update(cluster.bootstrap_servers, 0, DOWNGRADE) is ErrorCode.INVALID_UPDATE_VERSION
        cluster.create_topic("after")
    for _ in range(2):
        with klamm.Cluster(data) as cluster:
            assert finalized(cluster.bootstrap_servers) == 1
            assert cluster.topics() == ["after"]


def test_three_static_voters_upgrade_add_a_fourth_and_remove_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def json_of(*command: str) -> Any:
        assert run([*command, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    with controller_processes.running(tmp_path) as quorum:
        leader, _ = quorum.leader()
        ports = {node_id: one.port for node_id, one in quorum.controllers.items()}
        asked = next(port for node_id, port in ports.items() if node_id != leader.id)
        at = "--bootstrap-controller", f"127.0.0.1:{asked}"
        assert json_of("features", "describe", *at)["kraft.version"] == {"supported": [0, 1], "finalized": 0}
        upgrade = "features", "upgrade", "kraft.version=1", *at
        # Wait until the leader has the supported versions of all voters.
        wait_until(lambda: run([*upgrade, "--dry-run"]) == 0)
        capsys.readouterr()
        assert json_of(*upgrade) == {"upgraded": {"kraft.version": 1}}
        for port in ports.values():
            wait_until(lambda port=port: finalized(f"127.0.0.1:{port}") == 1)  # type: ignore[misc]
        described = json_of("quorum", "status", *at)
        assert all(voter["directoryId"] for voter in described["currentVoters"])
        assert described["currentObservers"] == []
        assert run(["features", "downgrade", "kraft.version=0", *at]) == 1
        assert "INVALID_UPDATE_VERSION" in capsys.readouterr().err

        fourth = Controller(tmp_path / "c4", 4, "", free_port(), {"controller.quorum.auto.join.enable": "true"})
        fourth.become_dynamic(",".join(f"127.0.0.1:{one}" for one in ports.values()))
        fourth.format(quorum.cluster_id, no_initial_controllers=True)
        quorum.controllers[4] = fourth
        fourth.launch()

        def voters() -> list[int]:
            # Right after a leader has stopped there is none, and the command fails with that error.
            code, said = run(["quorum", "status", *at, "--json"]), capsys.readouterr().out
            return [] if code else [voter["id"] for voter in json.loads(said)["currentVoters"]]

        wait_until(lambda: voters() == [1, 2, 3, 4])
        # A voter shows the join of the fourth before it is committed, and one change has to wait for the other.
        wait_until(lambda: run(["quorum", "remove", str(leader.id), "--yes", *at]) == 0)
        leader.stop()
        rest = [node_id for node_id in quorum.controllers if node_id != leader.id]
        wait_until(lambda: voters() == rest)
        # They restart with the voters of the log, not those of controller.quorum.voters.
        for node_id in rest:
            quorum.controllers[node_id].kill()
        for node_id in rest:
            quorum.controllers[node_id].launch()
        quorum.write("after", 1000, rest)
        assert voters() == rest
