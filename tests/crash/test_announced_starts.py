"""A start on a damaged partition does what `klamm storage check` announces."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import klamm
from klamm._engine.quorum import StorageError
from klamm.admin.client import Client
from klamm.cli.node.storage_examination import Finding, examine, findings_of
from klamm.cli.records.produce import Producer
from klamm.protocol.errors import ErrorCode

RECORDS = 60
TOPIC = "orders"
WAIT_S = 60


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node that stopped cleanly, with several segments."""
    place = tmp_path_factory.mktemp("intact") / "data"
    with klamm.Cluster(place) as cluster:
        cluster.create_topic(TOPIC, config={"segment.bytes": str(1 << 20)})
        with Client(cluster.bootstrap_servers) as client:
            producer = Producer(client, TOPIC, "none", None)
            for number in range(RECORDS):
                producer.add((1_700_000_000_000 + number, b"k", b"v" * 50_000, []))
                producer.flush()
    return place


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2 + 100 if file.suffix == ".log" else len(data) // 2] ^= 0x40
    file.write_bytes(data)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def halved(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def removed(file: Path) -> None:
    file.unlink()


class Case(NamedTuple):
    """The file, its damage, and whether the node was killed."""

    pattern: str
    number: int
    damage: Callable[[Path], None]
    is_killed: bool = False


CASES = [
    *(Case(f"{TOPIC}-0/*.log", number, damage) for number in (0, 1, -1) for damage in (flipped, emptied, removed)),
    *(Case(f"{TOPIC}-0/*.log", number, halved, is_killed) for number in (1, -1) for is_killed in (False, True)),
    *(Case(f"{TOPIC}-0/*.index", 0, damage) for damage in (flipped, removed)),
    *(Case(f"{TOPIC}-0/leader-epoch-checkpoint", 0, damage) for damage in (flipped, removed)),
    *(Case(f"{TOPIC}-0/partition.metadata", 0, damage) for damage in (emptied, removed)),
    *(Case("klamm-clean-stop", 0, damage) for damage in (flipped, removed)),
    *(Case("replication-offset-checkpoint", 0, damage) for damage in (emptied, removed)),
]


def named(case: Case) -> str:
    killed = "-killed" if case.is_killed else ""
    return f"{case.pattern}-{case.number}-{case.damage.__name__}{killed}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_start_does_what_is_announced(case: Case, intact: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(intact, data)
    if case.is_killed:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "klamm-clean-stop").unlink()
    file = sorted(data.glob(case.pattern))[case.number]
    case.damage(file)
    (directory,) = examine([data], deep=True)
    findings = findings_of([directory])
    (log,) = [log for log in directory.logs if log.path.name == f"{TOPIC}-0"]
    assert [one for one in findings if one.path == file], findings
    assert all("refuse" not in one.action for one in findings), findings
    with klamm.Cluster(data) as cluster:
        assert appended(cluster) == log.end_offset, findings
        read, refused = outcome(cluster, log.end_offset)
    assert refused == offsets_of(findings, "CORRUPT_MESSAGE"), findings
    kept = set(range(RECORDS)) - offsets_of(log.findings, "")
    if case.is_killed:  # after a kill, only the end of the log shows what was lost
        kept -= set(range(log.end_offset, RECORDS))
    assert read == kept | {log.end_offset}, findings


def garbled(file: Path) -> None:
    """Append bytes that are not UTF-8."""
    file.write_bytes(file.read_bytes() + b"\xff\xfe\x80\x00garbage\xe9\n")


def rewritten(file: Path) -> None:
    """The same properties in other forms that Java reads: blanks around the separator, an escape, a continued line."""
    text = file.read_text().replace("=", " ").replace("node.id", "\\u006eode.id \\\n ")
    file.write_text(text)


@pytest.mark.parametrize("damage", [flipped, halved, emptied, garbled, rewritten], ids=lambda one: one.__name__)
def test_a_start_rejects_meta_properties_as_announced(
    damage: Callable[[Path], None], intact: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(intact, data)
    file = data / "meta.properties"
    damage(file)
    findings = [one for one in findings_of(examine([data], deep=True)) if one.path == file]
    if damage in (garbled, rewritten):
        assert findings == []
    if findings:
        assert all("refuse" in one.action for one in findings)
        with pytest.raises(StorageError, match=r"meta\.properties"):
            klamm.Cluster(data).__enter__()
        return
    with klamm.Cluster(data) as cluster:
        assert appended(cluster) == RECORDS


def offsets_of(findings: Sequence[Finding], action: str) -> set[int]:
    """The offsets for which this action is announced."""
    return {at for one in findings if one.offsets is not None and action in one.action for at in range(*one.offsets)}


def appended(cluster: klamm.Cluster) -> int:
    """The offset of a new record."""
    offsets: list[int | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(TOPIC, b"new", on_delivery=lambda _, record: offsets.append(record.offset()))
    assert producer.flush(WAIT_S) == 0
    (offset,) = offsets
    assert offset is not None
    return offset


def outcome(cluster: klamm.Cluster, last_offset: int) -> tuple[set[int], set[int]]:
    """The offsets of the returned records, and those whose fetch fails as corrupt."""
    read: set[int] = set()
    refused: set[int] = set()
    place = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(place)
    offset, deadline = 0, time.monotonic() + WAIT_S
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    while last_offset not in read:
        assert time.monotonic() < deadline, (read, refused)
        record = consumer.poll(1)
        error = None if record is None else record.error()
        if record is None:
            continue
        if error is None:
            read.add(record.offset())
            offset = record.offset() + 1
            continue
        assert error.code() == ErrorCode.CORRUPT_MESSAGE, error
        refused.add(offset)
        offset += 1
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
    consumer.close()
    return read, refused
