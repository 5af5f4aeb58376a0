"""Apache Kafka starts on the directory that `klamm quorum recover` made of one of three voters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from klamm.cli.main import run
from tests.interop.apache_kafka import KafkaNode
from tests.support.foreign import require
from tests.support.lost_majority import TOPICS, make_three


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_apache_kafka_starts_on_a_recovered_quorum(
    tmp_path: Path, kraft_version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    require("java", "mvn")
    one, *_ = make_three(tmp_path, kraft_version)
    assert run(["quorum", "recover", str(one), "--apply"]) == 0
    node = KafkaNode(one)
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("after", 1, 1)])["after"].result(30)
        controller = node.settings["controller.quorum.voters"].partition("@")[2]
        assert run(["quorum", "doctor", "--bootstrap-controller", controller]) == 0
        capsys.readouterr()
        assert run(["metadata", "at", "--json", "--bootstrap-controller", controller]) == 0
        at_end = json.loads(capsys.readouterr().out)
        assert {*TOPICS, "after"} <= {topic["name"] for topic in at_end["topics"]}
        assert at_end["quorum"]["leader_id"] == 1
        assert {*TOPICS, "after"} <= admin.list_topics(timeout=30).topics.keys()
    finally:
        node.stop()
    with klamm.Cluster(one) as cluster:
        assert {*TOPICS, "after"} <= set(cluster.topics())
