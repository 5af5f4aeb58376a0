"""Which controller `QuorumClient` asks during an election."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.admin import quorum
from klamm.admin.quorum import QuorumClient
from klamm.client import ClientError
from klamm.client.connection import parse_bootstrap
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode


class Controllers:
    """Two controllers. The second becomes the leader after `refusals` requests, and is then known as the leader."""

    def __init__(self, refusals: int, known_after: int) -> None:
        self.refusals, self.known_after = refusals, known_after
        self.asked: list[str] = []
        self.first = FakeBroker(self._handlers("first"))
        self.second = FakeBroker(self._handlers("second"))

    def _handlers(self, name: str) -> dict[int, Any]:
        def described(request: object, version: int) -> dict[str, object]:
            self.asked.append(name)
            leads = name == "second" and self.asked.count("second") > self.refusals
            code = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
            voter = {"replica_id": 2, "log_end_offset": 7}
            partition = {"partition_index": 0, "error_code": code, "leader_id": 2, "leader_epoch": 3}
            partition |= {"high_watermark": 7, "current_voters": [voter], "observers": []}
            topic = {"topic_name": "__cluster_metadata", "partitions": [partition]}
            return {"error_code": 0, "topics": [topic], "nodes": []}

        def cluster(request: object, version: int) -> dict[str, object]:
            host, port = parse_bootstrap(self.second.address)[0]
            is_known = len(self.asked) > self.known_after
            node = {"broker_id": 2, "host": host, "port": port, "rack": None, "is_fenced": False}
            fields = {"error_code": 0, "endpoint_type": 2, "cluster_id": "c", "brokers": [node]}
            return fields | {"controller_id": 2 if is_known else -1}

        return {ApiKey.DESCRIBE_QUORUM: (2, 2, described), ApiKey.DESCRIBE_CLUSTER: (1, 2, cluster)}


def described_by(controllers: Controllers) -> int:
    with controllers.first, controllers.second, QuorumClient(controllers.first.address, is_controller=True) as client:
        return client.describe().leader_epoch


def test_the_leader_is_asked() -> None:
    controllers = Controllers(refusals=0, known_after=0)
    assert described_by(controllers) == 3
    assert controllers.asked == ["first", "second"]


def test_an_election_is_waited_for() -> None:
    controllers = Controllers(refusals=2, known_after=3)
    assert described_by(controllers) == 3
    assert controllers.asked == ["first"] * 4 + ["second"] * 3


def test_a_missing_leader_is_reported_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "ELECTION_S", 0.2)
    with pytest.raises(ClientError, match="knows no leader of the quorum: `klamm quorum doctor` says why"):
        described_by(Controllers(refusals=0, known_after=10**6))
    with pytest.raises(ClientError, match="NOT_LEADER_OR_FOLLOWER"):
        described_by(Controllers(refusals=10**6, known_after=0))
