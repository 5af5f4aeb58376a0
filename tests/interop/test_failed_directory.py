"""One of two log directories fails while the node runs: Apache Kafka 4.3.1 and klamm respond to clients alike.

The directory is moved away, and in some cases replaced by a file: open files can still be written, but nothing else
can, so that the next checkpoint fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from klamm import records
from klamm.protocol.api_key import ApiKey
from klamm.records import NewRecord
from tests.interop import apache_kafka
from tests.interop.peers import Peer
from tests.support import foreign
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 4
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "auto.create.topics.enable": "false",
}


class Asked:
    """One of the two nodes, with the partitions of its second directory before it failed."""

    def __init__(self, port: int, folders: list[Path]) -> None:
        self.peer, self.folders = Peer(port), folders
        self.lost: set[int] = set()

    def create(self, name: str, partitions: int) -> str:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        }
        asked = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        return str(self.peer.ask(ApiKey.CREATE_TOPICS, 6, asked)["topics"][0]["error_code"])

    def classed(self, answers: dict[int, Any]) -> dict[str, Any]:
        """The response per kind of partition, lost or kept; all of a kind have the same one."""
        found: dict[str, Any] = {}
        for index, answer in answers.items():
            kind = "lost" if index in self.lost else "kept"
            assert found.setdefault(kind, answer) == answer, (kind, index, answers)
        return found

    def metadata(self, name: str = "t") -> dict[int, Any]:
        (topic,) = self.peer.ask(ApiKey.METADATA, 9, {"topics": [{"name": name}]})["topics"]
        fields = ("error_code", "leader_id", "isr_nodes", "replica_nodes", "offline_replicas")
        return {one["partition_index"]: {field: one[field] for field in fields} for one in topic["partitions"]}

    def produce(self) -> dict[int, Any]:
        return {index: self.write(index) for index in range(PARTITIONS)}

    def write(self, index: int) -> str:
        topic = {"name": "t", "partition_data": [{"index": index, "records": records.encode([NewRecord(b"x")])}]}
        asked = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [topic]}
        answer = self.peer.ask(ApiKey.PRODUCE, 9, asked)
        return str(answer["responses"][0]["partition_responses"][0]["error_code"])

    def fetch(self) -> dict[int, Any]:
        wanted = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in range(PARTITIONS)]
        asked = {"max_wait": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": wanted}]}
        (topic,) = self.peer.ask(ApiKey.FETCH, 11, {"replica_id": -1, "max_bytes": 1 << 20, "rack_id": "", **asked})[
            "responses"
        ]
        return {
            one["partition_index"]: (one["error_code"], one["high_watermark"] < 0, bool(one["records"]))
            for one in topic["partitions"]
        }

    def list_offsets(self) -> dict[int, Any]:
        wanted = [{"partition_index": at, "timestamp": -1, "current_leader_epoch": -1} for at in range(PARTITIONS)]
        asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": wanted}]}
        (topic,) = self.peer.ask(ApiKey.LIST_OFFSETS, 6, asked)["topics"]
        return {one["partition_index"]: one["error_code"] for one in topic["partitions"]}

    def offset_for_epoch(self) -> dict[int, Any]:
        wanted = [{"partition": at, "current_leader_epoch": -1, "leader_epoch": 0} for at in range(PARTITIONS)]
        (topic,) = self.peer.ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -2, "topics": [{"topic": "t", "partitions": wanted}]}
        )["topics"]
        return {one["partition"]: one["error_code"] for one in topic["partitions"]}

    def where(self, name: str = "t") -> dict[str, tuple[str, set[int]]]:
        """The error of each directory, and a topic's partitions in it."""
        results = self.peer.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})["results"]
        return {
            Path(found["log_dir"]).name: (
                found["error_code"],
                {
                    at["partition_index"]
                    for topic in found["topics"]
                    if topic["name"] == name
                    for at in topic["partitions"]
                },
            )
            for found in results
        }

    def all(self) -> dict[str, Any]:
        """All that clients see."""
        where = self.where()
        return {
            "Metadata": self.classed(self.metadata()),
            "Produce": self.classed(self.produce()),
            "Fetch": self.classed(self.fetch()),
            "ListOffsets": self.classed(self.list_offsets()),
            "OffsetForLeaderEpoch": self.classed(self.offset_for_epoch()),
            "DescribeLogDirs": {name: (error, len(held)) for name, (error, held) in where.items()},
        }


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Asked, Asked]]:
    foreign.require("java", "mvn")
    folders = {name: [tmp_path / name / "one", tmp_path / name / "two"] for name in ("kafka", "klamm")}
    overrides = {
        name: {**SETTINGS, "log.dirs": ",".join(map(str, found)), "metadata.log.dir": str(found[0])}
        for name, found in folders.items()
    }
    (tmp_path / "kafka").mkdir()
    (tmp_path / "klamm").mkdir()
    kafka = apache_kafka.KafkaNode(tmp_path / "kafka" / "data", overrides=overrides["kafka"])
    kafka.format("FmLEJzC1oDM5WR89ieSnJg")
    klamm = NodeProcess(tmp_path / "klamm" / "data", overrides=overrides["klamm"])
    with ExitStack() as nodes:
        nodes.enter_context(kafka)
        nodes.enter_context(klamm)
        try:
            yield Asked(kafka.port, folders["kafka"]), Asked(klamm.port, folders["klamm"])
        finally:
            kafka.kill()
            klamm.kill()


def begin(asked: Asked) -> None:
    """Create a topic with a record in each partition."""
    wait_until(lambda: asked.create("t", PARTITIONS) in ("NONE", "TOPIC_ALREADY_EXISTS"), asked.metadata)
    for index in range(PARTITIONS):
        wait_until(lambda index=index: asked.write(index) == "NONE", asked.metadata)  # type: ignore[misc]
    wait_until(lambda: len(asked.where()["two"][1]) == PARTITIONS // 2, asked.where)
    asked.lost = asked.where()["two"][1]


def fail(asked: Asked, *, is_replaced: bool) -> None:
    """Make the directory fail, and write something that the next checkpoint has to store."""
    folder = asked.folders[1]
    folder.rename(folder.with_name("away"))
    if is_replaced:
        folder.touch()

    def is_lost() -> bool:
        for index in asked.lost:
            asked.write(index)
        return all(asked.metadata()[index]["leader_id"] == -1 for index in asked.lost)

    wait_until(is_lost, asked.metadata)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "replaced"])
def test_clients_get_the_same_responses(both: tuple[Asked, Asked], is_replaced: bool) -> None:
    for asked in both:
        begin(asked)
    kafka, klamm = both
    assert klamm.all() == kafka.all()
    for asked in both:
        fail(asked, is_replaced=is_replaced)
    theirs = kafka.all()
    assert klamm.all() == theirs
    assert theirs["Metadata"]["lost"]["leader_id"] == -1
    assert theirs["Produce"]["kept"] == "NONE"
    for asked in both:
        assert asked.create("later", 2) == "NONE"
        wait_until(lambda asked=asked: len(asked.where("later")["one"][1]) == 2, asked.where)  # type: ignore[misc]
    assert klamm.metadata("later") == kafka.metadata("later")
