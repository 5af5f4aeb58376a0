"""Apache Kafka's command line tools with three klamm controllers and a broker, and on their files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from klamm.formats.meta_properties import parse
from klamm.protocol.uuids import uuid_text
from tests.interop.apache_kafka import Tools, metadata_shell
from tests.support.dynamic_quorum import BROKER, DynamicQuorum
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
TOPICS = ("one", "two", "three")


def test_apache_kafkas_tools(tools: Tools, tmp_path: Path) -> None:
    """All tools use one quorum; the two controllers that join it are observers at first."""
    with DynamicQuorum(tmp_path / "quorum", 3, settings=SNAPSHOTS) as quorum:
        quorum.wait_for([1])
        quorum.start_broker()
        for node_id in (2, 3):
            quorum.start(node_id)
        for node_id in (2, 3):
            quorum.wait_for_observer(node_id)
        voters_are_added_shown_and_removed(tools, quorum)
        by_controller = "--bootstrap-controller", quorum.controllers[3].bootstrap
        features_change(tools, by_controller)
        configs_change(tools, by_controller, 2)
        check_tools_show_cluster(tools, by_controller, quorum, [one.port for one in quorum.controllers.values()])
        by_broker = "--bootstrap-server", quorum.broker.bootstrap
        features_change(tools, by_broker)
        configs_change(tools, by_broker, BROKER)
        quotas_change(tools, by_broker)
        check_tools_show_cluster(tools, by_broker, quorum, [quorum.broker.port])
        files_are_read(tools, quorum, tmp_path)
        quorum.broker.stop()
        assert "is no longer registered" in tools("cluster", "unregister", *by_controller, "--id", str(BROKER)).stdout


def directory_of(quorum: DynamicQuorum, node_id: int) -> str:
    found = parse((quorum.controllers[node_id].data / "meta.properties").read_text()).directory_id
    assert found is not None
    return uuid_text(found)


def table(printed: str) -> list[dict[str, str]]:
    head, *rows = ([cell.strip() for cell in line.split("\t")] for line in printed.strip().splitlines())
    return [dict(zip(head, row, strict=False)) for row in rows]


def voters_are_added_shown_and_removed(tools: Tools, quorum: DynamicQuorum) -> None:
    """kafka-metadata-quorum: each subcommand, sent to a controller that is not the leader and to a broker."""
    by_controller = "--bootstrap-controller", quorum.controllers[3].bootstrap
    by_broker = "--bootstrap-server", quorum.broker.bootstrap
    for node_id, at in ((2, by_controller), (3, by_broker)):
        command = *at, "--command-config", str(quorum.controllers[node_id].file), "add-controller"
        assert "DRY RUN" in tools("metadata-quorum", *command, "--dry-run").stdout
        assert node_id not in quorum.voters()
        assert f"Added controller {node_id} with directory id {directory_of(quorum, node_id)}" in (
            tools("metadata-quorum", *command).stdout
        )
        assert node_id in quorum.voters()
        assert "DuplicateVoterException" in tools("metadata-quorum", *command, check=False).stderr

    for at in (by_controller, by_broker):
        status = tools("metadata-quorum", *at, "describe", "--status").stdout
        output = dict(line.split(":", 1) for line in status.splitlines())
        assert output["ClusterId"].strip() == quorum.cluster_id
        assert int(output["LeaderId"]) == 1
        for node_id, controller in quorum.controllers.items():
            voter = f'"id": {node_id}, "directoryId": "{directory_of(quorum, node_id)}"'
            assert f'{voter}, "endpoints": ["CONTROLLER://{controller.bootstrap}"]' in output["CurrentVoters"]
        assert f'"id": {BROKER}' in output["CurrentObservers"]
        for option, shown in (((), r"\d{13}"), (("--human-readable",), r"\d+ ms ago")):
            rows = table(tools("metadata-quorum", *at, "describe", "--replication", *option).stdout)
            statuses = {int(row["NodeId"]): row["Status"] for row in rows}
            assert statuses == {1: "Leader", 2: "Follower", 3: "Follower", BROKER: "Observer"}
            assert all(re.fullmatch(shown, row["LastCaughtUpTimestamp"]) for row in rows), rows

    who = "--controller-id", "3", "--controller-directory-id", directory_of(quorum, 3)
    stranger = "--controller-id", "3", "--controller-directory-id", directory_of(quorum, 2)
    remove = *by_broker, "remove-controller"
    assert "VoterNotFoundException" in tools("metadata-quorum", *remove, *stranger, check=False).stderr
    assert "DRY RUN" in tools("metadata-quorum", *remove, *who, "--dry-run").stdout
    assert quorum.voters() == [1, 2, 3]
    assert "Removed" in tools("metadata-quorum", *remove, *who).stdout
    assert quorum.voters() == [1, 2]


def features_change(tools: Tools, at: tuple[str, str]) -> None:
    """kafka-features."""

    def level(feature: str) -> str:
        [line] = [one for one in tools("features", *at, "describe").stdout.splitlines() if f": {feature} " in one]
        return line.partition("FinalizedVersionLevel:")[2].split()[0]

    assert level("metadata.version") == "4.3-IV0"
    assert level("kraft.version") == "1"
    assert level("group.version") == "1"
    assert level("streams.version") == "1"
    assert "was disabled" in tools("features", *at, "disable", "--feature", "streams.version").stdout
    wait_until(lambda: level("streams.version") == "0")
    upgrade = *at, "upgrade", "--feature", "streams.version=1"
    assert "streams.version can be upgraded to 1" in tools("features", *upgrade, "--dry-run").stdout
    assert level("streams.version") == "0"
    assert "streams.version was upgraded to 1" in tools("features", *upgrade).stdout
    wait_until(lambda: level("streams.version") == "1")
    assert "was downgraded to 0" in tools("features", *at, "downgrade", "--feature", "streams.version=0").stdout
    tools("features", *upgrade)
    wait_until(lambda: level("streams.version") == "1")
    assert "can be upgraded to 30" in tools("features", *at, "upgrade", "--release-version", "4.3", "--dry-run").stdout
    for refused in ("kraft.version=2", "streams.version=2", "none.version=1"):
        output = tools("features", *at, "upgrade", "--feature", refused, check=False)
        assert "Could not upgrade" in output.stdout
        assert "1 out of 1 operation(s) failed" in output.stderr
    for refused in ("kraft.version=0", "metadata.version=25"):
        output = tools("features", *at, "downgrade", "--feature", refused, check=False)
        assert "Could not downgrade" in output.stdout, output


def quotas_change(tools: Tools, at: tuple[str, str]) -> None:
    """kafka-configs with quotas."""

    def alter(entity: tuple[str, ...], *change: str, check: bool = True) -> str:
        done = tools("configs", *at, "--alter", *entity, *change, check=check)
        return done.stdout + done.stderr

    def shown(*entity: str) -> str:
        printed: str = tools("configs", *at, "--describe", *entity).stdout
        return printed

    user = "--entity-type", "users", "--entity-name", "alice"
    client = "--entity-type", "clients", "--entity-default"
    address = "--entity-type", "ips", "--entity-name", "10.1.2.3"
    alter(user, "--add-config", "producer_byte_rate=1000,request_percentage=12.5")
    alter((*user, *client), "--add-config", "consumer_byte_rate=2000")
    alter(address, "--add-config", "connection_creation_rate=30")
    wait_until(lambda: "connection_creation_rate=30.0" in shown(*address))
    assert "for user-principal 'alice' are producer_byte_rate=1000.0, request_percentage=12.5" in shown(*user)
    both = "for user-principal 'alice', the default client-id are consumer_byte_rate=2000.0"
    assert both in shown(*user, *client)
    assert "must be greater than 0" in alter(user, "--add-config", "producer_byte_rate=-1", check=False)
    alter(user, "--delete-config", "producer_byte_rate,request_percentage")
    alter((*user, *client), "--delete-config", "consumer_byte_rate")
    alter(address, "--delete-config", "connection_creation_rate")
    wait_until(lambda: "connection_creation_rate" not in shown(*address))
    assert "producer_byte_rate" not in shown(*user)


def check_tools_show_cluster(tools: Tools, at: tuple[str, str], quorum: DynamicQuorum, ports: list[int]) -> None:
    """kafka-cluster."""
    assert f"Cluster ID: {quorum.cluster_id}" in tools("cluster", "cluster-id", *at).stdout
    listed = tools("cluster", "list-endpoints", *at).stdout
    assert [int(port) for port in re.findall(r"127\.0\.0\.1 +(\d+)", listed)] == ports
    assert "is not registered" in tools("cluster", "unregister", *at, "--id", "77", check=False).stderr


def configs_change(tools: Tools, at: tuple[str, str], node_id: int) -> None:
    """kafka-configs, for one node and for all."""
    one = "--entity-type", "brokers", "--entity-name", str(node_id)
    assert "Completed" in tools("configs", *at, *one, "--alter", "--add-config", "log.cleaner.threads=2").stdout
    wait_until(lambda: "log.cleaner.threads=2" in tools("configs", *at, *one, "--describe").stdout)
    assert "Completed" in tools("configs", *at, *one, "--alter", "--delete-config", "log.cleaner.threads").stdout
    wait_until(lambda: "log.cleaner.threads" not in tools("configs", *at, *one, "--describe").stdout)
    everywhere = "--entity-type", "brokers", "--entity-default", "--describe"
    assert "min.insync.replicas=1" in tools("configs", *at, *everywhere).stdout
    assert "log.retention.hours=168" in tools("configs", *at, *one, "--describe", "--all").stdout


def files_are_read(tools: Tools, quorum: DynamicQuorum, tmp_path: Path) -> None:
    """kafka-dump-log and kafka-metadata-shell read the log and a snapshot of the leader."""
    log = quorum.controllers[1].data / "__cluster_metadata-0"
    topic = "--bootstrap-server", quorum.broker.bootstrap, "--create", "--topic"
    for name in TOPICS:
        tools("topics", *topic, name, "--partitions", "3")
    newest = max(path.stem for path in log.glob("*.checkpoint"))
    wait_until(lambda: max(path.stem for path in log.glob("*.checkpoint")) > newest, bound_s=60)
    copied = tmp_path / "copied" / log.name
    shutil.copytree(log, copied)
    *_, snapshot = sorted(copied.glob("*.checkpoint"))
    first, *_ = sorted(copied.glob("*.log"))

    dumped = tools("dump-log", "--cluster-metadata-decoder", "--files", str(first)).stdout
    assert "isvalid: false" not in dumped
    directories = [directory_of(quorum, node_id) for node_id in (1, 2, 3)]
    voters = [
        re.findall(r'"voterDirectoryId":"([^"]+)"', line) for line in dumped.splitlines() if "KRaftVoters" in line
    ]
    assert voters[:2] == [directories[:1], directories[:2]]
    for record in ('LeaderChange: {"version":', 'KRaftVersion {"version":0,"kRaftVersion":1}'):
        assert record in dumped
    for record in ("REGISTER_CONTROLLER", "REGISTER_BROKER", "FEATURE_LEVEL", "TOPIC", "PARTITION", "NO_OP"):
        assert f'"type":"{record}_RECORD"' in dumped
    dumped = tools("dump-log", "--cluster-metadata-decoder", "--files", str(snapshot)).stdout
    for record in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert record in dumped

    assert "Unable to lock" in tools("metadata-shell", "-s", str(log / first.name), "ls", check=False).stderr
    for file in (first, snapshot):
        shown = metadata_shell(file, "tree", "/image", until="4.3-IV0")
        for node_id, controller in quorum.controllers.items():
            assert f"ControllerRegistration(id={node_id}, " in shown
            assert f"port={controller.port}" in shown
        assert set(re.findall(r"name:\n +(\w+)", shown)) == set(TOPICS)
