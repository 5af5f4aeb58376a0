"""Every metadata file is damaged in every way, after a clean stop and after a kill.

A start either fails, names the damage and a remedy, and changes nothing, or it serves every topic and every record, and
treats no partition as stray. The node is the only voter, so no other node has the lost records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

import klamm
from klamm._engine.quorum import StorageError
from klamm.cli.main import run
from klamm.cli.node.storage_examination import examine, findings_of
from klamm.formats.directories import METADATA_FOLDER
from tests.support.waiting import wait_until

CONFIG = {
    "metadata.log.segment.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.max.retention.bytes": "-1",
}
WAIT_S = 60
STOPS = ("closed", "killed")
WAYS_OUT = (
    "Restore",
    "restore it from a copy",
    "Move it away",
    "Remove it",
    "Exchange",
    "klamm storage format",
    "set node.id=",
)


class Left(NamedTuple):
    """The data of a node and what it had acknowledged."""

    data: Path
    topics: list[str]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """The data of a cleanly stopped node, and a copy as a kill would leave it."""
    folder = tmp_path_factory.mktemp("left")
    closed, killed = folder / "closed", folder / "killed"
    topics = []
    with klamm.Cluster(closed, config=CONFIG) as cluster:
        deadline = time.monotonic() + WAIT_S
        while len(files(closed, "*.log")) < 4 or len(files(closed, "*.checkpoint")) < 3:
            assert time.monotonic() < deadline, "the log is neither rolled nor written as a snapshot"
            topics.append(f"topic-{len(topics)}")
            cluster.create_topic(topics[-1])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for topic in topics:
            producer.produce(topic, b"record")
        assert producer.flush(WAIT_S) == 0
        shutil.copytree(closed, killed)
    return {"closed": Left(closed, topics), "killed": Left(killed, topics)}


def files(data: Path, pattern: str) -> list[Path]:
    return sorted((data / METADATA_FOLDER).glob(pattern))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KINDS: dict[str, Callable[[Path], Path]] = {
    "first segment": lambda data: files(data, "*.log")[0],
    "closed segment": lambda data: files(data, "*.log")[1],
    "active segment": lambda data: files(data, "*.log")[-1],
    "offset index": lambda data: files(data, "*.index")[0],
    "older snapshot": lambda data: files(data, "*.checkpoint")[0],
    "newest snapshot": lambda data: files(data, "*.checkpoint")[-1],
    "epoch checkpoint": lambda data: data / METADATA_FOLDER / "leader-epoch-checkpoint",
    "recovery point": lambda data: data / METADATA_FOLDER / "klamm-recovery-point",
    "quorum-state": lambda data: data / METADATA_FOLDER / "quorum-state",
    "meta.properties": lambda data: data / "meta.properties",
    "bootstrap.checkpoint": lambda data: data / "bootstrap.checkpoint",
}


def damages(data: Path, damaged: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The damages to a file, by description, each on a new copy."""
    whole = damaged.read_bytes()
    for at in sorted({0, 7, 20, len(whole) // 2, len(whole) - 1} & set(range(len(whole)))):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        yield f"byte {at} flipped", lambda flipped=flipped: damaged.write_bytes(flipped)  # type: ignore[misc]
    yield "cut", lambda: damaged.write_bytes(whole[: len(whole) // 2])
    yield "zeroed", lambda: damaged.write_bytes(bytes(len(whole)))
    yield "emptied", lambda: damaged.write_bytes(b"")
    yield "removed", damaged.unlink
    others = [path for path in damaged.parent.glob(f"*{damaged.suffix}") if path != damaged]
    if damaged.suffix in (".log", ".checkpoint") and others and damaged.parent.name == METADATA_FOLDER:
        yield "exchanged with another", lambda: exchange(damaged, others[0])


def exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_or_nothing_is_lost(
    kind: str, stop: str, left: dict[str, Left], tmp_path: Path
) -> None:
    source = left[stop]
    outcomes = []
    count = len(list(damages(source.data, KINDS[kind](source.data))))
    for number in range(count):
        data = tmp_path / str(number)
        shutil.copytree(source.data, data)
        name, damage = list(damages(data, KINDS[kind](data)))[number]
        damage()
        outcomes.append((name, check(data, KINDS[kind](source.data).name, source.topics, name)))
    print(f"{kind}, {stop}: {outcomes}")


def check(data: Path, file_name: str, topics: list[str], what: str) -> str:
    """Start a node on it; returns the outcome."""
    before = contents(data)
    findings = findings_of(examine([data], deep=True))
    assert contents(data) == before, what
    is_announced = any(one.action.startswith(("a start refuses", "a sole voter refuses")) for one in findings)
    try:
        cluster = klamm.Cluster(data, config=CONFIG)
    except StorageError as error:
        said = str(error)
        assert is_announced, f"{what}: {said}: {findings}"
        assert file_name in said or METADATA_FOLDER in said or str(data) in said, f"{what}: {said}"
        assert any(way in said for way in WAYS_OUT), f"{what}: {said}"
        changed = {path for path, data in contents(data).items() if before.get(path) != data}
        assert not {path for path in changed if path.suffix in (".log", ".checkpoint", ".properties")}, what
        return "refused"
    with cluster:
        assert not is_announced, f"{what}: {findings}"
        assert cluster.topics() == sorted(topics), what
        assert [one.value for one in cluster.records(topics[0])] == [b"record"], what
        assert not list(data.glob("*-stray*")), what
    return "whole"


@pytest.mark.parametrize("stop", STOPS)
def test_the_whole_metadata_folder_is_removed(stop: str, left: dict[str, Left], tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(left[stop].data, data)
    shutil.rmtree(data / METADATA_FOLDER)
    before = contents(data)
    with pytest.raises(StorageError, match=r"the metadata log is empty or missing, although .*topic-\d+-0 belongs"):
        klamm.Cluster(data, config=CONFIG)
    after = contents(data)
    assert {path: after[path] for path in before if path.suffix == ".log"} == {
        path: content for path, content in before.items() if path.suffix == ".log"
    }


def test_the_loss_is_accepted_by_the_command_that_the_message_names(
    left: dict[str, Left], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    shutil.copytree(left["closed"].data, data)
    for snapshot in files(data, "*.checkpoint"):
        snapshot.unlink()
    damaged = files(data, "*.log")[1]  # the last ones may not contain a topic
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2] + bytes(10) + whole[len(whole) // 2 + 10 :])
    with pytest.raises(StorageError) as refused:
        klamm.Cluster(data, config=CONFIG)
    command = str(refused.value).rpartition("`klamm ")[2].rstrip("`").split()
    assert command == ["quorum", "recover", "--accept-loss", "--apply", str(data)]
    assert run(["quorum", "recover", str(data)]) != 0
    assert "--accept-loss" in capsys.readouterr().err
    assert run(command) == 0
    said = capsys.readouterr().out
    assert "never start" not in said
    [kept] = [line.removeprefix("kept: ") for line in said.splitlines() if line.startswith("kept: ")]
    assert (Path(kept) / damaged.name).exists()

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if "is a stray" in record.getMessage()]

    for _ in range(2):
        with klamm.Cluster(data, config=CONFIG) as cluster:
            found = cluster.topics()
            assert found == sorted(left["closed"].topics[: len(found)]), "a first part of them"
            assert 0 < len(found) < len(left["closed"].topics)
        reported = len(warnings())
        assert len(list(data.glob("*-stray"))) == reported, "each folder that was set aside was reported"
    lost = set(left["closed"].topics) - set(found)
    with klamm.Cluster(data, config=CONFIG):
        wait_until(lambda: len(warnings()) == len(lost))
    assert all(f"the metadata has no topic {name}." in "".join(warnings()) for name in lost)
