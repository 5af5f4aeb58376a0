"""`klamm topics reassign`, `reassignments` and `describe --under-replicated` on one node."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from klamm.admin.client import Client
from klamm.admin.reassignments import ongoing, reassign
from klamm.admin.topics import topics
from klamm.cli.main import run
from klamm.client import BrokerError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_partition import TopicPartition

Klamm = Callable[..., tuple[str, str]]


@pytest.fixture
def klamm(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Klamm:
    """Runs a command below `topics`; returns its output and its errors."""

    def command(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["topics", *arguments, "--bootstrap", bootstrap]) == code
        said = capsys.readouterr()
        return said.out, said.err

    return command


def test_the_only_broker_keeps_the_replicas(klamm: Klamm, bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        (broker,) = topics(client, [topic])[0].partitions[0].replicas
    assert "nothing to change" in "".join(klamm("reassign", topic))
    assert "nothing to change" in "".join(klamm("reassign", topic, "--to", str(broker), "--wait"))
    assert json.loads(klamm("reassign", topic, "--cancel", "--json")[0]) == []
    assert "no partition is being reassigned" in "".join(klamm("reassignments"))
    assert json.loads(klamm("reassignments", topic, "--json")[0]) == []
    assert "all replicas are in sync" in "".join(klamm("describe", topic, "--under-replicated"))


def test_invalid_reassignments_are_explained(klamm: Klamm, bootstrap: str, topic: str) -> None:
    assert "INVALID_REPLICA_ASSIGNMENT" in klamm("reassign", topic, "--to", "99", code=1)[1]
    assert (
        "2 replicas of a partition need as many brokers, and there are 1"
        in (klamm("reassign", topic, "--replicas", "2", code=1)[1])
    )
    assert "is not a list of brokers" in klamm("reassign", topic, "--to", "one", code=1)[1]
    with Client(bootstrap) as client:
        place = TopicPartition(topic, 0)
        with pytest.raises(BrokerError, match=f"{topic}-0: .*NO_REASSIGNMENT_IN_PROGRESS") as refused:
            reassign(client, {place: None})
        assert refused.value.error_code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        with pytest.raises(BrokerError, match="INVALID_REPLICA_ASSIGNMENT"):
            reassign(client, {place: (1, 2)}, may_change_factor=False)
        assert ongoing(client) == []
