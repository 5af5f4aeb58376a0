"""Apache Kafka opens what klamm formatted, and klamm opens what Apache Kafka formatted."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli.main import run
from klamm.config import rules
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from tests.interop.apache_kafka import KafkaNode, Tools, tool
from tests.support.foreign import require
from tests.support.ports import free_port
from tests.support.quorum_processes import FileNode


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


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static voters", "standalone"])
def test_klamm_starts_on_what_apache_kafka_formatted(tools: Tools, tmp_path: Path, is_dynamic: bool) -> None:
    port, controller = free_port(), free_port()
    voters = ("bootstrap.servers", "") if is_dynamic else ("voters", "1@")
    settings = {
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        f"controller.quorum.{voters[0]}": f"{voters[1]}127.0.0.1:{controller}",
    }
    node = FileNode(tmp_path, 1, port, settings)
    cluster_id = random_cluster_id()
    tools("storage", "format", "-t", cluster_id, "-c", str(node.file), *(["--standalone"] if is_dynamic else []))
    with node:
        tools("topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", "made")
        status = tools("metadata-quorum", "--bootstrap-server", node.bootstrap, "describe", "--status").stdout
        assert cluster_id in status
        assert ("directoryId" in status) == is_dynamic
