"""Moves between log directories, compared with Apache Kafka 4.3.1: responses, tools, and unfinished moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import records
from klamm.protocol.api_key import ApiKey
from klamm.records import NewRecord
from tests.interop.apache_kafka import KafkaNode, Tools
from tests.interop.every_version.topics import new_topic
from tests.interop.peers import Peer
from tests.support import foreign
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

CLUSTER = "FmLEJzC1oDM5WR89ieSnJg"
NAMES = ("one", "two")
SET = 0


class Asked:
    """A node of either system with two log directories."""

    def __init__(self, port: int, folders: list[Path]) -> None:
        self.port, self.folders = port, folders
        self._peer = Peer(port)

    def ask(self, key: int, version: int, **fields: Any) -> dict[str, Any]:
        return self._peer.ask(key, version, fields)

    def create(self, name: str, partitions: int) -> None:
        topic = new_topic(name) | {"num_partitions": partitions}

        def is_there() -> bool:
            answer = self.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000)
            return answer["topics"][0]["error_code"] in ("NONE", "TOPIC_ALREADY_EXISTS")

        wait_until(is_there, bound_s=60)
        for index in range(partitions):
            wait_until(lambda index=index: self.write(name, index, 10) == "NONE", bound_s=60)

    def write(self, topic: str, index: int, size: int) -> str:
        batch = records.encode([NewRecord(b"x" * size)])
        data = [{"name": topic, "partition_data": [{"index": index, "records": batch}]}]
        answer = self.ask(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=data)
        return str(answer["responses"][0]["partition_responses"][0]["error_code"])

    def alter(self, path: Path | str, *partitions: int, topic: str = "t") -> dict[int, str]:
        dirs = [{"path": str(path), "topics": [{"name": topic, "partitions": list(partitions)}]}]
        answer = self.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
        [result] = answer["results"]
        return {one["partition_index"]: one["error_code"] for one in result["partitions"]}

    def set(self, **values: str) -> None:
        named = ((name.replace("_", "."), text) for name, text in values.items())
        configs = [{"name": name, "config_operation": SET, "value": text} for name, text in named]
        resources = [{"resource_type": 4, "resource_name": "1", "configs": configs}]
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
        assert [one["error_code"] for one in answer["responses"]] == ["NONE"]

    def described(self) -> dict[str, Any]:
        """By the directory's name: its error, whether it is cordoned, and its partitions with lag and kind."""
        answer = self.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=[{"topic": "t", "partitions": [0, 1]}])
        return {
            Path(found["log_dir"]).name: (
                found["error_code"],
                found["is_cordoned"],
                sorted(
                    (one["partition_index"], one["offset_lag"], one["is_future_key"])
                    for topic in found["topics"]
                    for one in topic["partitions"]
                ),
            )
            for found in answer["results"]
        }

    def where(self, index: int) -> list[str]:
        return [name for name, (_, _, found) in self.described().items() if (index, 0, False) in found]

    def moves(self) -> bool:
        return any(is_future for _, _, found in self.described().values() for *_, is_future in found)

    def end(self, index: int) -> int:
        wanted = {"partition_index": index, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": "t", "partitions": [wanted]}]
        answer = self.ask(ApiKey.LIST_OFFSETS, 6, replica_id=-1, isolation_level=0, topics=topics)
        return int(answer["topics"][0]["partitions"][0]["offset"])


def folders_in(folder: Path) -> list[Path]:
    folder.mkdir()
    return [folder / name for name in NAMES]


def overrides(folders: list[Path]) -> dict[str, str]:
    return {
        "log.dirs": ",".join(map(str, folders)),
        "metadata.log.dir": str(folders[0]),
        "auto.create.topics.enable": "false",
    }


def kafka_node(folder: Path, folders: list[Path]) -> KafkaNode:
    node = KafkaNode(folder / "data", overrides=overrides(folders))
    node.format(CLUSTER)
    return node


@pytest.fixture
def klamm(tmp_path: Path) -> Iterator[Asked]:
    folders = folders_in(tmp_path / "klamm")
    with NodeProcess(tmp_path / "klamm" / "data", overrides=overrides(folders)) as node:
        yield Asked(node.port, folders)


def test_both_give_the_same_responses(klamm: Asked, tmp_path: Path) -> None:
    foreign.require("java", "mvn")
    folders = folders_in(tmp_path / "kafka")
    with kafka_node(tmp_path / "kafka", folders) as node:
        answers = [list(story(each)) for each in (Asked(node.port, folders), klamm)]
    theirs, ours = answers
    assert ours == theirs


def story(asked: Asked) -> Iterator[Any]:
    """The responses of a node, from errors to a move and a cordoned directory."""
    asked.create("t", 2)
    yield asked.alter("/nowhere", 0, 1)
    yield asked.alter(asked.folders[0], 7)
    yield asked.alter(asked.folders[0], 0, topic="unknown")
    yield asked.alter(asked.folders[0], 0, topic="t" * 249)
    # The assignment to the directories is random.
    for name in ("one", "two", "one"):
        yield asked.alter(asked.folders[NAMES.index(name)], 0, 1)
        # At the end of a move Apache Kafka briefly shows the partition in both directories.
        wait_until(lambda: not asked.moves() and all(asked.where(index) == [name] for index in (0, 1)), bound_s=60)  # noqa: B023
        yield asked.described()
    asked.set(cordoned_log_dirs=str(asked.folders[1]))
    wait_until(lambda: asked.described()["two"][1], bound_s=60)
    yield asked.described()
    yield asked.alter(asked.folders[1], 0)
    yield asked.alter(asked.folders[0], 0)


def test_apache_kafkas_tools_move_partitions(tools: Tools, klamm: Asked, tmp_path: Path) -> None:
    klamm.create("t", 2)
    for _ in range(20):
        assert klamm.write("t", 0, 10_000) == "NONE"
    at = "--bootstrap-server", f"127.0.0.1:{klamm.port}"
    printed = tools("log-dirs", *at, "--describe", "--topic-list", "t").stdout
    [line] = [line for line in printed.splitlines() if line.startswith("{")]
    [broker] = json.loads(line)["brokers"]
    assert {Path(found["logDir"]) for found in broker["logDirs"]} == set(klamm.folders)
    [name] = klamm.where(0)
    other = klamm.folders[1 - NAMES.index(name)]
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [broker["broker"]], "log_dirs": [str(other)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    command = "--reassignment-json-file", str(plan)
    throttle = "--replica-alter-log-dirs-throttle", "100000000", "--throttle", "100000000"
    printed = tools("reassign-partitions", *at, "--execute", *command, *throttle).stdout
    assert f"log directory to {other} for replica t-0" in printed
    wait_until(lambda: klamm.where(0) == [other.name] and not klamm.moves(), bound_s=60)
    printed = tools("reassign-partitions", *at, "--verify", *command).stdout
    assert f"Reassignment of replica t-0-{broker['broker']} completed successfully." in printed
    assert klamm.end(0) == 21


def test_a_move_that_apache_kafka_had_begun_is_finished(tmp_path: Path) -> None:
    foreign.require("java", "mvn")
    folders = folders_in(tmp_path / "kafka")
    node = kafka_node(tmp_path / "kafka", folders)
    with node:
        kafka = Asked(node.port, folders)
        kafka.create("t", 1)
        for _ in range(30):
            assert kafka.write("t", 0, 100_000) == "NONE"
        [name] = kafka.where(0)
        other = folders[1 - NAMES.index(name)]
        kafka.set(replica_alter_log_dirs_io_max_bytes_per_second="1000")
        assert kafka.alter(other, 0) == {0: "NONE"}
        wait_until(lambda: list(other.glob("t-0.*-future")), bound_s=60)
        end = kafka.end(0)
    assert list(other.glob("t-0.*-future"))
    with NodeProcess(tmp_path / "kafka" / "data", overrides=node.settings, port=node.port) as klamm_node:
        klamm = Asked(klamm_node.port, folders)
        wait_until(lambda: klamm.end(0) == end, bound_s=60)
        klamm.set(replica_alter_log_dirs_io_max_bytes_per_second="1000000000")
        wait_until(lambda: klamm.where(0) == [other.name] and not klamm.moves(), bound_s=60)
        assert klamm.end(0) == end
        assert klamm.write("t", 0, 10) == "NONE"
    assert not list(other.glob("t-0.*-future"))
    with node:
        kafka = Asked(node.port, folders)
        wait_until(lambda: kafka.write("t", 0, 10) == "NONE", bound_s=60)
        assert (kafka.end(0), kafka.where(0)) == (end + 2, [other.name])


def test_a_move_that_klamm_had_begun_is_finished_by_apache_kafka(tmp_path: Path) -> None:
    foreign.require("java", "mvn")
    folders = folders_in(tmp_path / "kafka")
    kafka = kafka_node(tmp_path / "kafka", folders)
    with NodeProcess(tmp_path / "kafka" / "data", overrides=kafka.settings, port=kafka.port) as node:
        klamm = Asked(node.port, folders)
        klamm.create("t", 1)
        for _ in range(30):
            assert klamm.write("t", 0, 100_000) == "NONE"
        [name] = klamm.where(0)
        other = folders[1 - NAMES.index(name)]
        klamm.set(replica_alter_log_dirs_io_max_bytes_per_second="1000")
        assert klamm.alter(other, 0) == {0: "NONE"}
        wait_until(lambda: list(other.glob("t-0.*-future")), bound_s=60)
        end = klamm.end(0)
    assert list(other.glob("t-0.*-future"))
    with kafka:
        asked = Asked(kafka.port, folders)
        wait_until(lambda: asked.end(0) == end, bound_s=60)
        asked.set(replica_alter_log_dirs_io_max_bytes_per_second="1000000000")
        wait_until(lambda: asked.where(0) == [other.name] and not asked.moves(), bound_s=60)
        assert asked.write("t", 0, 10) == "NONE"
        assert asked.end(0) == end + 1
