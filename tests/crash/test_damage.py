"""Damage to a partition's files as clients see it: intact records around it are kept, and no offset is reused.

Rust tests cover every kind of file and damage (`log/damage_tests.rs`); these cases need a whole node.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

RECORDS = 400
RECORDS_IN_BATCH = 10
SETTINGS = {"log.segment.bytes": "1048576", "replica.high.watermark.checkpoint.interval.ms": "50"}


def value_of(number: int) -> str:
    return f"{number}".ljust(8000, ".")


def produce(node: NodeProcess, first: int, count: int) -> list[int]:
    """Produce in batches of `RECORDS_IN_BATCH`; returns the acknowledged offsets."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 1000, "log_level": 0})
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for number in range(first, first + count):
        producer.produce("t", value_of(number), partition=0, on_delivery=delivered)
        if number % RECORDS_IN_BATCH == RECORDS_IN_BATCH - 1:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    return offsets


def consume(node: NodeProcess) -> tuple[dict[int, str], list[int]]:
    """Every record by offset, and the offsets with CORRUPT_MESSAGE, after which the reader continues."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings | {"fetch.error.backoff.ms": 1, "auto.offset.reset": "error", "log_level": 0})
    found: dict[int, str] = {}
    corrupt: list[int] = []
    low, _ = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60)
    place = low
    consumer.assign([TopicPartition("t", 0, place)])
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, f"stopped at {place}"
            error = message.error()
            if error is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                found[offset] = value.decode()
                place = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return found, corrupt
            else:
                assert error.code() == KafkaError.INVALID_MSG, error
                corrupt.append(place)
                place += 1
                consumer.assign([TopicPartition("t", 0, place)])
    finally:
        consumer.close()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def empty_active(folder: Path) -> str:
    segments(folder)[-1].write_bytes(b"")
    return segments(folder)[-1].name


def remove_active(folder: Path) -> str:
    active = segments(folder)[-1]
    active.unlink()
    return active.name


def flip_closed(folder: Path) -> str:
    (folder.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    flip(segments(folder)[1], 200)
    return segments(folder)[1].name


def flip_base_offset(folder: Path) -> str:
    flip(segments(folder)[1], 6)
    return segments(folder)[1].name


def flip_first_length(folder: Path) -> str:
    flip(segments(folder)[-1], 10)
    return segments(folder)[-1].name


def flip_last_length(folder: Path) -> str:
    """Makes the last batch of the log shorter: the bytes after its end are not a batch."""
    path = segments(folder)[-1]
    content = bytearray(path.read_bytes())
    last, position = 0, 0
    while (length := int.from_bytes(content[position + 8 : position + 12])) > 0:
        last, position = position, position + 12 + length
    assert content[last + 10] > 0
    content[last + 10] &= content[last + 10] - 1
    path.write_bytes(content)
    return path.name


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "damage",
    [empty_active, remove_active, flip_closed, flip_base_offset, flip_first_length, flip_last_length],
    ids=lambda one: one.__name__,
)
def test_damage_loses_only_the_damaged_records(tmp_path: Path, damage: Callable[[Path], str], is_clean: bool) -> None:
    node = NodeProcess(tmp_path / "data", overrides=SETTINGS)
    node.start()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        assert produce(node, 0, RECORDS) == list(range(RECORDS))
        checkpoint = tmp_path / "data" / "replication-offset-checkpoint"
        wait_until(lambda: checkpoint.exists() and f"t 0 {RECORDS}\n" in checkpoint.read_text())
        if is_clean:
            assert node.stop() == 0
        else:
            node.kill()
        folder = tmp_path / "data" / "t-0"
        assert len(segments(folder)) > 2
        starts = [int(path.stem) for path in segments(folder)]
        name = damage(folder)
        node.start()
        # A reader waits at the lost records until there are later ones.
        [offset] = produce(node, RECORDS, 1)
        assert offset >= RECORDS
        found, corrupt = consume(node)
        assert found.pop(offset) == value_of(RECORDS)
        assert all(value == value_of(offset) for offset, value in found.items())
        lost = set(range(RECORDS)) - found.keys()
        assert lost
        assert lost <= set(
            range(int(name[:20]), min([start for start in starts if start > int(name[:20])] + [RECORDS]))
        )
        if damage not in (empty_active, remove_active):
            assert len(lost) == RECORDS_IN_BATCH
            assert lost <= set(corrupt)
        warnings = [line for line in node.log().splitlines() if " WARN " in line]
        # After a kill, only the high watermark shows that the last segment is missing; the message names its folder.
        named = "t-0" if damage is remove_active and not is_clean else name
        naming = [line for line in warnings if named in line]
        assert naming, warnings
        if damage not in (empty_active, remove_active):
            assert len(naming) == 1, warnings
    finally:
        node.kill()


def test_a_log_directory_that_is_removed_acknowledges_nothing_more(tmp_path: Path) -> None:
    data = tmp_path / "logs"
    node = NodeProcess(tmp_path / "data", overrides={"log.dirs": str(data), "metadata.log.dir": str(tmp_path / "meta")})
    node.start()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        assert produce(node, 0, 10) == list(range(10))
        shutil.rmtree(data)
        producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 5000, "log_level": 0})
        errors: list[KafkaError | None] = []
        producer.produce("t", "lost", partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors[0] is not None
        # It was the only directory: the node stops, with the reason as its last line.
        assert node.wait(60) != 0
        lines = node.log().splitlines()
        assert sum(f"log directory {data} is out of use" in line for line in lines) == 1, lines
        assert lines[-1].startswith(f"klamm: every log directory has failed, {data} as the last: "), lines
    finally:
        node.kill()


def test_a_stop_during_recovery_writes_the_clean_stop_record(tmp_path: Path) -> None:
    """Most logs have not been opened by then; the stop recovers them, so that the next start can compare them."""
    partitions = 200
    node = NodeProcess(tmp_path / "node")
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", partitions, 1)])["t"].result(60)
        producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
        for partition in range(partitions):
            producer.produce("t", "value", partition=partition)
        assert producer.flush(60) == 0
        node.kill()
        for _ in range(2):
            node.start()
            assert node.stop() == 0
            assert (node.data / ".kafka_cleanshutdown").exists()
            record = (node.data / "klamm-clean-stop").read_text()
            assert record.count("\nt ") == partitions
    finally:
        node.kill()
