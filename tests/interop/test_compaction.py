"""Apache Kafka 4.3.1 and klamm compact the same directory: the same records survive, and both read all files.

Apache Kafka writes the directory with its cleaner disabled. Both clean a copy with the same settings, in two rounds;
both start the second one from the result of klamm's first.
"""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from klamm import records
from tests.interop import apache_kafka
from tests.interop.test_golden import read
from tests.support import foreign
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLUSTER_ID = "FmLEJzC1oDM5WR89ieSnJg"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "8000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
    "index.interval.bytes": "200",
}
OWN: Mapping[str, Mapping[str, str]] = {
    **{codec: {} for codec in CODECS},
    "converted": {"compression.type": "zstd"},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "idempotent": {},
    "transactional": {},
    "soon": {"delete.retention.ms": "0"},
    "overdue": {"min.cleanable.dirty.ratio": "0.99", "max.compaction.lag.ms": "1"},
    "both": {"cleanup.policy": "compact,delete", "retention.ms": "2000000"},
    "lagging": {"min.compaction.lag.ms": "86400000"},
    "rarely": {"min.cleanable.dirty.ratio": "0.99"},
}
"""Each topic's settings beside those of all."""
FIRST_OLD_MS = 3_000_000
MARKER_TAIL = 14
"""Bytes of a marker's record from its offset on."""
AT_REST = {"log.cleaner.backoff.ms": "100000000", "log.retention.check.interval.ms": "100000000"}
AT_WORK = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
}
NEVER_CLEANED = {1: {"lagging"}, 2: {"lagging", "rarely"}}
"""By round. A log that was never cleaned is all dirty."""


class Writer:
    """Keyed records with some tombstones, determined by a seed."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.bootstrap, self.rng = bootstrap, random.Random(seed)

    def producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **named})

    def write(self, producer: Producer, topic: str, count: int, *, mark: str, first_ms: int = 0) -> None:
        """`first_ms`: the timestamp of the first record; 0 for the current time."""
        for number in range(count):
            tombstone = self.rng.random() < 0.2
            producer.produce(
                topic,
                key=f"k{self.rng.randrange(60)}",
                value=None if tombstone else mark * self.rng.randrange(1, 60),
                partition=0,
                headers=[("h", b"x"), ("n", None)] if number % 7 == 0 else None,
                timestamp=first_ms and first_ms + number,
            )
            producer.poll(0)
            if self.rng.random() < 0.1:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    def transact(self, topic: str, count: int, mark: str) -> None:
        """Some transactions commit, some abort."""
        for number in range(count):
            producer = self.producer(transactional_id=f"{number % 4}")
            producer.init_transactions(30)
            for _ in range(3):
                producer.begin_transaction()
                self.write(producer, topic, self.rng.randrange(1, 20), mark=mark)
                (producer.abort_transaction if self.rng.random() < 0.4 else producer.commit_transaction)(30)


def fill(bootstrap: str) -> None:
    """Write the records of the first round."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, 1, 1, config={**BASE, **own}) for topic, own in OWN.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    writer = Writer(bootstrap, 5)
    for topic in OWN:
        if topic == "transactional":
            writer.transact(topic, 12, "t")
        elif topic == "both":
            writer.write(writer.producer(), topic, 300, mark="old", first_ms=int(time.time() * 1000) - FIRST_OLD_MS)
        elif topic == "idempotent":
            for number in range(3):
                writer.write(writer.producer(enable_idempotence=True), topic, 100, mark=f"{number}")
        codec = topic if topic in CODECS else "lz4" if topic == "converted" else "none"
        writer.write(writer.producer(compression_type=codec), topic, 400, mark="first")


def fill_again(bootstrap: str, keep: list[Producer]) -> None:
    """Write the records of the second round.

    New tombstones are not retained any longer (delete.retention.ms is 1), and one transaction stays open.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("delete.retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource("topic", topic, incremental_configs=[entry]) for topic in OWN]
    for future in admin.incremental_alter_configs(resources).values():
        future.result(30)
    writer = Writer(bootstrap, 9)
    for topic in OWN:
        if topic == "transactional":
            writer.transact(topic, 6, "u")
            writer.write(writer.producer(), topic, 100, mark="between")
            keep.append(writer.producer(transactional_id="open", transaction_timeout_ms=900_000))
            keep[-1].init_transactions(30)
            keep[-1].begin_transaction()
            writer.write(keep[-1], topic, 3, mark="open")
        writer.write(writer.producer(), topic, 200, mark="second")


def files(data: Path, topic: str) -> dict[str, bytes]:
    """The files of a partition, except those that are marked as deleted."""
    found = sorted((data / f"{topic}-0").iterdir())
    return {path.name: path.read_bytes() for path in found if path.suffix != ".deleted"}


def segments(data: Path, topic: str) -> list[str]:
    return [path.stem for path in sorted((data / f"{topic}-0").glob("*.log"))]


def clean_up_to(data: Path) -> dict[str, int]:
    """The offset in `cleaner-offset-checkpoint`."""
    path = data / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {topic: int(offset) for topic, _, offset in (line.split() for line in lines) if topic in OWN}


def batches(log: bytes) -> Iterator[Any]:
    """Header and records of each batch. A tombstone's delete horizon is omitted: it depends on when the cleaner ran."""
    at = 0
    while at + 61 <= len(log) and (length := int.from_bytes(log[at + 8 : at + 12])) > 0:
        batch, at = log[at : at + 12 + length], at + 12 + length
        (checked,) = records.batches(batch)
        checked.check()
        offset, _, epoch, *_ = struct.unpack_from(">qiiB", batch)
        attributes, last_delta, base_ms, max_ms = struct.unpack_from(">hiqq", batch, 21)
        has_horizon = bool(attributes & 0x40)
        rows: Any
        if attributes & 0x20:
            # A marker's timestamp is stored as the difference to that of the header.
            rows = batch[61:][-MARKER_TAIL:] if has_horizon else batch[61:]
        else:
            rows = [(row.offset, row.timestamp_ms, row.key, row.value, row.headers) for row in records.decode(batch)]
        producer = struct.unpack_from(">qhii", batch, 43)
        yield offset, epoch, attributes, last_delta, None if has_horizon else base_ms, max_ms, producer, rows


def content(data: Path, topic: str) -> list[Any]:
    logs = [log for name, log in files(data, topic).items() if name.endswith(".log")]
    return [batch for log in logs for batch in batches(log)]


def served(bootstrap: str) -> dict[tuple[str, str], list[Any]]:
    """The records of every topic as clients read them."""
    levels = ("read_uncommitted", "read_committed")
    return {(topic, level): read(bootstrap, topic, level) for topic in OWN for level in levels}


@dataclass
class Round:
    """One round of both cleaners."""

    number: int
    kafka: Path
    klamm: Path
    seen: dict[tuple[str, str], list[Any]]
    """What klamm served after it."""


def clean_by_kafka(data: Path, number: int) -> None:
    due = OWN.keys() - NEVER_CLEANED[number] - {"transactional"}
    before = clean_up_to(data)

    def is_clean() -> bool:
        reached = clean_up_to(data)
        # With an open transaction, Apache Kafka logs how far it cleans.
        moved = reached.get("transactional", 0) > before.get("transactional", 0)
        return moved and all(reached.get(topic) == int(segments(data, topic)[-1]) for topic in due)

    with apache_kafka.KafkaNode(data, overrides=AT_WORK):
        wait_until(is_clean, lambda: {topic: (clean_up_to(data).get(topic), segments(data, topic)) for topic in due})


def clean_by_klamm(data: Path, as_in: Path) -> dict[tuple[str, str], list[Any]]:
    def state(of: Path) -> object:
        return clean_up_to(of), {topic: segments(of, topic) for topic in OWN}

    overrides = {"node.id": "1", "offsets.topic.num.partitions": "4", **AT_WORK}
    with NodeProcess(data, overrides=overrides) as node:
        wait_until(lambda: state(data) == state(as_in), lambda: (state(data), state(as_in)))
        return served(node.bootstrap)


def copied(data: Path, name: str) -> Path:
    return Path(shutil.copytree(data, data.with_name(name)))


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> list[Round]:
    foreign.require("java", "mvn")
    base = tmp_path_factory.mktemp("compaction") / "base"
    found: list[Round] = []
    keep: list[Producer] = []
    for number in (1, 2):
        if number == 1:
            with apache_kafka.running(base, CLUSTER_ID, AT_REST) as node:
                fill(node.bootstrap)
        else:
            base = copied(found[0].klamm, "again")
            with apache_kafka.KafkaNode(base, overrides=AT_REST) as node:
                fill_again(node.bootstrap, keep)
        kafka, klamm = copied(base, f"kafka-{number}"), copied(base, f"klamm-{number}")
        clean_by_kafka(kafka, number)
        found.append(Round(number, kafka, klamm, clean_by_klamm(klamm, kafka)))
    return found


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def round_of_both(rounds: list[Round], request: pytest.FixtureRequest) -> Round:
    return rounds[int(request.param)]


@pytest.mark.parametrize("topic", OWN)
def test_the_same_survives(round_of_both: Round, topic: str) -> None:
    kafka, klamm = round_of_both.kafka, round_of_both.klamm
    assert content(klamm, topic) == content(kafka, topic)
    ours, theirs = files(klamm, topic), files(kafka, topic)
    aborted = {name for name in ours.keys() & theirs.keys() if name.endswith(".txnindex")}
    assert {name: ours[name] for name in aborted} == {name: theirs[name] for name in aborted}
    was_cleaned = topic not in NEVER_CLEANED[round_of_both.number]
    assert (topic in clean_up_to(klamm)) == (was_cleaned or (round_of_both.number == 2 and topic == "rarely"))


def test_the_data_cover_every_rule(rounds: list[Round]) -> None:
    """The test data cover gaps, tombstones before and after their horizon, markers, and records that are too old."""
    first, second = rounds

    def tombstones(of: Round, topic: str, below: int) -> set[int]:
        rows = of.seen[topic, "read_uncommitted"]
        return {offset for offset, _, _, value in rows if value is None and offset < below}

    cleaned = {topic: clean_up_to(first.klamm).get(topic, 0) for topic in OWN}
    for topic in ("none", "soon"):
        offsets = [row[0] for row in first.seen[topic, "read_uncommitted"]]
        assert len(offsets) < offsets[-1], "no gaps"
        assert tombstones(first, topic, cleaned[topic])
    assert tombstones(second, "none", cleaned["none"]), "their time had begun with a day"
    assert not tombstones(second, "soon", cleaned["soon"])
    assert any(batch[2] & 0x40 for batch in content(first.klamm, "none")), "no delete horizon"
    assert any(batch[2] & 0x20 for batch in content(second.klamm, "transactional")), "no marker"
    assert int(segments(first.klamm, "both")[0]) > 0
    for (topic, level), rows in second.seen.items():
        if level == "read_committed":
            assert ("open" in {row[3] and row[3][:4] for row in rows}) is False, topic


def test_kafka_dumps_every_file(round_of_both: Round) -> None:
    folders = [round_of_both.klamm / f"{topic}-0" for topic in OWN]
    for suffix, options in ((".log", ("--deep-iteration",)), (".index", ()), (".timeindex", ()), (".txnindex", ())):
        found = [path for folder in folders for path in sorted(folder.glob(f"*{suffix}"))]
        assert found
        said = apache_kafka.dump(found, *options)
        for complaint in ("isvalid: false", "Mismatches", "Found timestamp mismatch", "Error", "Exception"):
            assert complaint not in said, said[-3000:]
    snapshots = [path for folder in folders for path in sorted(folder.glob("*.snapshot"))]
    assert "producerId: " in apache_kafka.dump(snapshots)


def test_kafka_serves_what_klamm_served(round_of_both: Round) -> None:
    data = copied(round_of_both.klamm, f"served-{round_of_both.number}")
    with apache_kafka.KafkaNode(data, overrides=AT_REST) as kafka:
        assert served(kafka.bootstrap) == round_of_both.seen
