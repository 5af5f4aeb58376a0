"""kraft.version goes up while the node runs, and stays (KIP-853)."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import klamm
from klamm.protocol.codec import build, decode_response, encode, request_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.feature_updates import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.interop.group_peers import Peer

UPGRADE, DOWNGRADE = 1, 2


def update(bootstrap: str, level: int, how: int, *, validate_only: bool = False) -> ErrorCode:
    peer = Peer(bootstrap)
    request = UpdateFeaturesRequest((FeatureUpdateKey("kraft.version", level, how),), validate_only)
    peer.send("admin", request, 2)
    code: ErrorCode = peer.receive("admin", UpdateFeaturesResponse, 2).error_code
    return code


def finalized(bootstrap: str) -> int:
    """The level that ApiVersions tells."""
    body = encode(build(request_class(18, 3), client_software_name="test", client_software_version="1"))
    frame = struct.pack(">hhih", 18, 3, 7, -1) + b"\0" + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = decode_response(18, 3, answers.read(struct.unpack(">i", answers.read(4))[0])[4:])
    levels: dict[str, int] = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get("kraft.version", 0)


def test_a_sole_voter_upgrades_and_starts_again(tmp_path: Path) -> None:
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
