"""What klamm formats, Apache Kafka opens; what Apache Kafka formats, klamm opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli.main import run
from klamm.node import rules
from klamm.node.directories import open_directories
from klamm.node.storage import FormatRequest, format_storage, random_cluster_id
from tests.interop.apache_kafka import KafkaNode, Tools, tool
from tests.support.foreign import require


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static voters", "dynamic quorum"])
def test_apache_kafka_starts_on_what_klamm_formatted(tmp_path: Path, is_dynamic: bool) -> None:
    require("java", "mvn")
    node = KafkaNode(tmp_path / "data")
    if is_dynamic:
        voters = node.settings.pop("controller.quorum.voters")
        node.settings["controller.quorum.bootstrap.servers"] = voters.partition("@")[2]
    config = rules.checked(node.settings)
    format_storage(config, FormatRequest(random_cluster_id(), standalone=is_dynamic))
    with node:
        tool("topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", "made", "--partitions", "2")
        assert tool("topics", "--bootstrap-server", node.bootstrap, "--list").stdout.split() == ["made"]


@pytest.mark.parametrize(
    "command",
    [
        "version-mapping",
        "version-mapping -r 3.9.2",
        "version-mapping --release-version 4.1-IV0",
        "feature-dependencies -f eligible.leader.replicas.version=1 -f metadata.version=17 -f kraft.version=1",
    ],
)
def test_what_both_tools_print_is_the_same(tools: Tools, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", *command.split()]) == 0
    assert capsys.readouterr().out == tools("storage", *command.split()).stdout


def test_klamm_opens_what_apache_kafka_formatted(tmp_path: Path) -> None:
    require("java", "mvn")
    node = KafkaNode(tmp_path / "data")
    cluster_id = random_cluster_id()
    node.format(cluster_id)
    opened = open_directories(rules.checked(node.settings))
    opened.locks.release()
    assert opened.cluster_id == cluster_id
    assert list(opened.directory_ids) == [tmp_path / "data"]
