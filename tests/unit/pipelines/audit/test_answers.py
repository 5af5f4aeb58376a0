"""The answers of an audit without Spark, in its own process, for logs that are written by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.metadata_life import Life
from tests.support.metadata_stories import ORDERS, OTHER, WrittenLog, change, partition, register, registration

from klamm.cli.main import run
from klamm.pipelines.audit import open_audit, summarize
from klamm.pipelines.audit.rows import rows_of_answer
from klamm.protocol.generated import metadata_records as mr
from klamm.protocol.uuids import uuid_text

DISK, OTHER_DISK = bytes(15) + b"\x21", bytes(15) + b"\x22"


def answers(directory: Path, question: str, columns: str) -> list[tuple[Any, ...]]:
    """The rows, by offset."""
    with open_audit(directory) as audit:
        found = list(rows_of_answer(audit.answer(question)))
    found.sort(key=lambda row: row.get("offset", row.get("from_offset")))
    return [tuple(row[name] for name in columns.split()) for row in found]


def of_disk(broker: int, epoch: int, disk: bytes) -> mr.RegisterBrokerRecord:
    """A registration with a log directory."""
    plain = register(broker, epoch)
    return mr.RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=plain.incarnation_id,
        broker_epoch=epoch,
        end_points=(),
        features=(),
        rack=None,
        log_dirs=(disk,),
    )


def life_of_a_single_replica(directory: Path, comes_back_with: bytes) -> None:
    """Its broker is killed, and it is elected as the last known leader after the unclean shutdown (KIP-966)."""
    log = WrittenLog(directory)
    log.lead(1000, 1, 1)
    log.put(2000, of_disk(1, 1, DISK), registration(1, fenced=-1))
    alone = partition(ORDERS, 0, [1], [1], 1)
    with_disk = mr.PartitionRecord(**{**fields(alone), "directories": (DISK,)})
    log.put(3000, mr.TopicRecord(name="orders", topic_id=ORDERS), with_disk)
    log.put(4000, change(ORDERS, 0, isr=[], leader=-1, last_known_elr=[1]), of_disk(1, 9, comes_back_with))
    log.put(5000, registration(1, fenced=-1, broker_epoch=9))
    log.put(5000, change(ORDERS, 0, isr=[1], leader=1, last_known_elr=[], leader_recovery_state=1))
    log.put(6000, change(ORDERS, 0, leader_recovery_state=0))
    log.close()


def fields(record: object) -> dict[str, Any]:
    names = record.__slots__ if hasattr(record, "__slots__") else vars(record)
    return {name: getattr(record, name) for name in names}  # type: ignore[union-attr]


def test_an_intact_single_replica_is_no_unclean_election(tmp_path: Path) -> None:
    life_of_a_single_replica(tmp_path, DISK)
    assert answers(tmp_path, "unclean_elections", "offset") == []
    assert answers(tmp_path, "leadership", "kind is_unclean") == [("lost", False), ("regained", False)]
    assert answers(tmp_path, "leaderless", "duration_ms ended") == [(1000, "elected")]


def test_a_single_replica_that_lost_its_directory_is_an_unclean_election(tmp_path: Path) -> None:
    life_of_a_single_replica(tmp_path, OTHER_DISK)
    assert answers(tmp_path, "unclean_elections", "topic to_leader recovered_time") == [("orders", 1, 6000)]


def test_the_life_of_topics(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.lead(1000, 1, 1)
    log.put(2000, mr.TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, [1], [1], 1))
    log.put(2000, partition(ORDERS, 1, [1], [1], 1))  # a large topic takes several batches
    log.put(3000, mr.TopicRecord(name="other", topic_id=OTHER), partition(OTHER, 0, [1], [1], 1))
    log.put(4000, *(partition(ORDERS, number, [1], [1], 1) for number in (2, 3, 4)))
    log.put(5000, mr.RemoveTopicRecord(topic_id=ORDERS))
    log.close()
    columns = "topic topic_id timestamp change partitions_before partitions"
    orders, other = uuid_text(ORDERS), uuid_text(OTHER)
    assert answers(tmp_path, "topic_changes", columns) == [
        ("orders", orders, 2000, "created", 0, 2),
        ("other", other, 3000, "created", 0, 1),
        ("orders", orders, 4000, "grown", 2, 5),
        ("orders", orders, 5000, "deleted", 5, 0),
    ]
    with open_audit(tmp_path) as audit:
        summary = summarize(audit)
    assert "2 topics were created, 1 topic was given more partitions and 1 topic was deleted." in summary


def write_incidents(directory: Path) -> None:
    """Broker 2 is fenced and two partitions lose their leader; it returns, and lags twice, an hour apart."""
    log = WrittenLog(directory)
    log.lead(1000, 1, 1)
    log.put(2000, register(1, 1), register(2, 2), registration(1, fenced=-1), registration(2, fenced=-1))
    log.put(3000, mr.TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, [2, 1], [2, 1], 2))
    log.put(3000, partition(ORDERS, 1, [2], [2], 2), partition(ORDERS, 2, [1, 2], [1, 2], 1))
    log.put(
        10_000,
        change(ORDERS, 0, isr=[1], leader=1),
        change(ORDERS, 1, leader=-1),
        change(ORDERS, 2, isr=[1]),
        registration(2, fenced=1),
    )
    log.put(20_000, registration(2, fenced=-1), change(ORDERS, 1, leader=2))
    log.put(21_000, change(ORDERS, 0, isr=[1, 2]), change(ORDERS, 2, isr=[1, 2]))
    log.put(25_000, change(ORDERS, 0, leader=2))
    for time_ms in (100_000, 130_000, 3_700_000):
        log.put(time_ms, change(ORDERS, 2, isr=[1]))
        log.put(time_ms + 1000, change(ORDERS, 2, isr=[1, 2]))
    log.close()


def test_findings_are_grouped_by_cause_and_time(tmp_path: Path) -> None:
    write_incidents(tmp_path)
    columns = "cause broker from_time to_time leaders_moved leaders_lost isr_shrinks returned partitions"
    assert answers(tmp_path, "incidents", columns) == [
        ("broker 2 was fenced", 2, 10_000, 21_000, 1, 1, 2, 3, 3),
        ("the preferred replica was elected", None, 25_000, 25_000, 1, 0, 0, 0, 1),
        ("broker 2 fell behind", 2, 100_000, 131_000, 0, 0, 2, 2, 1),
        ("broker 2 fell behind", 2, 3_700_000, 3_701_000, 0, 0, 1, 1, 1),
    ]


def test_the_report_begins_with_a_summary_in_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_incidents(tmp_path)
    assert run(["audit", "--data", str(tmp_path), "--html", str(tmp_path / "report.html")]) == 0
    summary = capsys.readouterr().out.splitlines()
    assert summary == [
        "The log covers 1.0 h, from 1970-01-01T00:00:01.000Z to 1970-01-01T01:01:41.000Z, in 24 records.",
        "The quorum elected a leader once; node 1 has led since 1970-01-01T00:00:01.000Z, in epoch 1.",
        "At the end all 2 brokers are active.",
        "1 topic was created.",
        "Every partition has a leader at the end; 1 time a partition had no leader, the longest orders-1, at "
        "1970-01-01T00:00:10.000Z for 10.0 s.",
        "All replicas are in sync at the end; 5 times a partition had replicas that are not in sync, the longest "
        "orders-0, at 1970-01-01T00:00:10.000Z for 11.0 s.",
        "No leader was elected uncleanly.",
        "Broker 2 was fenced at 1970-01-01T00:00:10.000Z: 1 partition lost its leader, 1 leader moved and 2 ISRs "
        "shrank.",
        "Broker 2 fell behind at 1970-01-01T00:01:40.000Z: 2 ISRs shrank.",
        "The preferred replica was elected at 1970-01-01T00:00:25.000Z: 1 leader moved.",
        "No config was changed.",
    ]
    page = (tmp_path / "report.html").read_text()
    assert page.index("Broker 2 was fenced at") < page.index("<section")
    assert run(["audit", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == summary


def test_a_log_of_twenty_thousand_records_needs_no_spark(tmp_path: Path) -> None:
    life = Life(tmp_path, seed=5)
    life.live(20_000)
    life.close()
    code = (
        "import sys; sys.modules['pyspark'] = None; from klamm.cli.main import run; "
        f"code = run(['audit', '--data', {str(tmp_path)!r}, '--html', {str(tmp_path / 'report.html')!r}]); "
        "import time; print(time.process_time()); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    first, *_, processor_s = done.stdout.splitlines()
    assert "records." in first
    assert float(processor_s) < 10, "a tenth of it on an idle machine"
    assert (tmp_path / "report.html").read_text().count("<section") == 11
