"""One of several log directories is missing when the node starts, or fails later: the others keep serving."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from klamm import records
from klamm.admin.client import Client
from klamm.admin.topics import create, delete
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partitions import (
    ALL_IN_SYNC_REPLICAS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm.protocol.value import Value
from klamm.records import NewRecord
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

PARTITIONS = 4
LATEST = -1
LOST = ErrorCode.KAFKA_STORAGE_ERROR


class DescribableTopic(Value):
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest(Value):
    """Of all topics."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_LOG_DIRS
    topics: tuple[DescribableTopic, ...] | None = None


class LogDirPartition(Value):
    partition_index: int


class LogDirTopic(Value):
    name: str
    partitions: tuple[LogDirPartition, ...]


class LogDir(Value):
    log_dir: str
    topics: tuple[LogDirTopic, ...]


class DescribeLogDirsResponse(Value):
    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_LOG_DIRS
    results: tuple[LogDir, ...]


def ends(client: Client, topic: str, partitions: int = PARTITIONS) -> list[int | ErrorCode]:
    """The response of the single broker, whether or not it is the leader."""
    wanted = tuple(ListOffsetsPartition(at, LATEST) for at in range(partitions))
    request = ListOffsetsRequest((ListOffsetsTopic(topic, wanted),))
    (answer,) = client.any.ask(request, ListOffsetsResponse, 7).topics
    return [one.offset if one.error_code == ErrorCode.NONE else ErrorCode(one.error_code) for one in answer.partitions]


def write(client: Client, topic: str, index: int) -> ErrorCode:
    data = records.encode([NewRecord(b"x")])
    topics = (TopicProduceData(topic, partition_data=(PartitionProduceData(index, data),)),)
    answer = client.any.ask(ProduceRequest(ALL_IN_SYNC_REPLICAS, 30_000, topics), ProduceResponse, 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def leaderless(client: Client, topic: str) -> set[int]:
    """The partitions that Metadata shows without a leader and offline."""
    (found,) = client.metadata([topic]).topics
    lost = {one.partition_index for one in found.partitions if one.leader_id == -1}
    for one in found.partitions:
        is_lost = one.partition_index in lost
        assert one.error_code == (ErrorCode.LEADER_NOT_AVAILABLE if is_lost else ErrorCode.NONE)
        assert bool(one.offline_replicas) == is_lost
    return lost


def where(client: Client, name: str = "t") -> dict[str, set[int]]:
    """The partitions of a topic in each directory, or assigned to it."""
    answer = client.any.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse, 4)
    return {
        found.log_dir: {one.partition_index for topic in found.topics if topic.name == name for one in topic.partitions}
        for found in answer.results
    }


def take_away(folder: Path, to: Path) -> None:
    """Replace it with something that cannot be written to."""
    folder.rename(to)
    folder.touch()


def give_back(folder: Path, away: Path) -> None:
    folder.unlink()
    away.rename(folder)


def node_with(folders: list[Path], data: Path) -> NodeProcess:
    return NodeProcess(data, overrides={"log.dirs": ",".join(map(str, folders))})


def test_partitions_of_a_missing_directory_are_not_created_elsewhere(tmp_path: Path) -> None:
    """Otherwise a new, empty log in another directory would be served as the partition."""
    folders = [tmp_path / "one", tmp_path / "two"]
    node = node_with(folders, tmp_path / "data")
    with node, Client(node.bootstrap) as client:
        create(client, ["t"], partitions=PARTITIONS)
        assert [write(client, "t", index) for index in range(PARTITIONS)] == [ErrorCode.NONE] * PARTITIONS
    lost = {int(found.name.removeprefix("t-")) for found in folders[1].glob("t-*")}
    assert 0 < len(lost) < PARTITIONS
    take_away(folders[1], tmp_path / "away")
    with node, Client(node.bootstrap) as client:
        assert ends(client, "t") == [LOST if index in lost else 1 for index in range(PARTITIONS)]
        assert leaderless(client, "t") == lost
        create(client, ["new"], partitions=2)
        assert ends(client, "new", 2) == [0, 0]
    give_back(folders[1], tmp_path / "away")
    with node, Client(node.bootstrap) as client:
        assert leaderless(client, "t") == set()
        assert ends(client, "t") == [1] * PARTITIONS


def test_partitions_of_a_failed_directory_have_no_leader(tmp_path: Path) -> None:
    """Also for partitions without files: each has a directory from its creation on, as in Apache Kafka."""
    folders = [tmp_path / "one", tmp_path / "two"]
    node = node_with(folders, tmp_path / "data")
    with node, Client(node.bootstrap) as client:
        create(client, ["t"], partitions=PARTITIONS)
        planned = where(client)
        lost = planned[str(folders[1])]
        first, second = sorted(lost)
        assert write(client, "t", first) is ErrorCode.NONE
        assert [path.name for path in folders[1].glob("t-*")] == [f"t-{first}"]
        assert where(client) == planned
    with node, Client(node.bootstrap) as client:
        assert where(client) == planned, "a stop keeps the plans"
        take_away(folders[1], tmp_path / "away")
        assert write(client, "t", second) is LOST
        wait_until(lambda: leaderless(client, "t") == lost)
        assert where(client) == {str(folders[0]): planned[str(folders[0])], str(folders[1]): set()}
        assert ends(client, "t") == [LOST if index in lost else 0 for index in range(PARTITIONS)]
        assert [write(client, "t", index) for index in range(PARTITIONS)] == [
            LOST if index in lost else ErrorCode.NONE for index in range(PARTITIONS)
        ]
        create(client, ["later"], partitions=2)
        assert ends(client, "later", 2) == [0, 0]
    give_back(folders[1], tmp_path / "away")
    with node, Client(node.bootstrap) as client:
        assert leaderless(client, "t") == set()
        assert where(client) == planned
        assert write(client, "t", second) is ErrorCode.NONE
        assert ends(client, "t") == [1] * PARTITIONS


@pytest.mark.parametrize("is_written", [False, True])
def test_new_partitions_go_to_the_emptiest_directory_after_a_restart_too(tmp_path: Path, is_written: bool) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    node = node_with(folders, tmp_path / "data")
    with node, Client(node.bootstrap) as client:
        create(client, ["a", "b", "c"])
        directories = {name: [folder for folder, found in where(client, name).items() if found] for name in "abc"}
        assert directories["a"] == directories["c"] != directories["b"]
        if is_written:
            assert [write(client, name, 0) for name in "ac"] == [ErrorCode.NONE] * 2
        delete(client, ["b"])
    with node, Client(node.bootstrap) as client:
        create(client, ["t"], partitions=2)
        assert where(client)[directories["b"][0]] == {0, 1}, "the other one has two already"


def test_a_node_whose_directories_have_all_failed_stops(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    overrides = {"log.dirs": ",".join(map(str, folders)), "metadata.log.dir": str(tmp_path / "metadata")}
    node = NodeProcess(tmp_path / "data", overrides=overrides)
    with node, Client(node.bootstrap) as client:
        create(client, ["t"], partitions=2)
        for folder in folders:
            (index,) = where(client)[str(folder)]
            take_away(folder, tmp_path / f"{folder.name}-away")
            assert write(client, "t", index) is LOST
        assert node.wait() == 1
    (message,) = (line for line in node.log().splitlines() if line.startswith("klamm: "))
    assert message.startswith("klamm: every log directory has failed, "), message
    assert "Traceback" not in node.log()
