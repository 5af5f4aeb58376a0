"""`kill -9` at random points under load: acknowledged records are in the log once, in order, without offset gaps.

A life of a data folder is ten kills; a third of them hit a node that is still starting. A failure prints the line that
replays its life (although timing still varies). `make slow` kills 200 times.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess

KILLS = int(os.environ.get("KLAMM_KILLS", "10"))
SEED = int(os.environ.get("KLAMM_KILL_SEED", str(random.SystemRandom().randrange(1 << 30))))
LIVES_IN_SLOW = 20
PARTITIONS = 3
PRODUCERS = 3


class Load:
    """A producer thread that writes `<producer>-<number>` and remembers the acknowledged offsets."""

    def __init__(self, bootstrap: str, number: int, first: int) -> None:
        self.number = number
        self.next = first
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            index = self.next
            try:
                self._producer.produce(
                    "load",
                    value=f"{self.number}-{index}".ljust(100, "."),
                    partition=(self.number + index) % PARTITIONS,
                    on_delivery=lambda error, message, index=index: self._delivered(error, message, index),
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.next += 1
            self._producer.poll(0)
            if index % 20 == 0:
                time.sleep(0.001)

    def _delivered(self, error: object, message: object, index: int) -> None:
        if error is None:
            self.acknowledged[index] = (message.partition(), message.offset())  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Stop; the outcome of unacknowledged records stays unknown."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)
        del self._producer  # it ends the threads of librdkafka, too


def read_all(bootstrap: str, partition: int) -> list[tuple[int, str]]:
    """(offset, value) of every record of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("load", partition, 0)])
    rows: list[tuple[int, str]] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, f"partition {partition} stopped at {len(rows)} records"
            if message.error() is not None:
                return rows
            rows.append((message.offset(), message.value().decode().rstrip(".")))
    finally:
        consumer.close()


def check(bootstrap: str, loads: list[Load]) -> None:
    """The guarantee for every partition and producer."""
    found = {partition: read_all(bootstrap, partition) for partition in range(PARTITIONS)}
    where: dict[str, tuple[int, int]] = {}
    for partition, rows in found.items():
        assert [offset for offset, _ in rows] == list(range(len(rows))), f"offsets of partition {partition} have gaps"
        last: dict[str, int] = {}
        for offset, value in rows:
            assert value not in where, f"{value} is there twice: {where[value]} and {(partition, offset)}"
            where[value] = (partition, offset)
            producer, index = value.split("-")
            assert int(index) > last.get(producer, -1), f"{value} is out of order in partition {partition}"
            last[producer] = int(index)
    for load in loads:
        for index, place in load.acknowledged.items():
            value = f"{load.number}-{index}"
            assert where.get(value) == place, f"{value} was acknowledged at {place}, found at {where.get(value)}"


@pytest.mark.timeout(KILLS * 30 + 120)
def test_no_acknowledged_record_is_lost_duplicated_or_moved(tmp_path: Path) -> None:
    live(tmp_path, SEED)


@pytest.mark.slow
@pytest.mark.timeout(KILLS * 30 + 120)
@pytest.mark.parametrize("life", range(1, LIVES_IN_SLOW + 1))
def test_no_acknowledged_record_is_lost_in_many_lives(tmp_path: Path, life: int) -> None:
    live(tmp_path, SEED + life)


def live(folder: Path, seed: int) -> None:
    """Kill a node under load repeatedly, and check the guarantee at the end."""
    rng = random.Random(seed)
    node = NodeProcess(folder / "data", overrides={"log.segment.bytes": "1048576"})
    acknowledged = 0
    loads: list[Load] = []
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("load", PARTITIONS, 1)])["load"].result()
        for round_number in range(KILLS):
            loads += [Load(node.bootstrap, round_number * PRODUCERS + n, 0) for n in range(PRODUCERS)]
            time.sleep(0.1 + rng.random() * 0.6)
            node.kill()
            if rng.randrange(3) == 0:
                node.launch()
                time.sleep(rng.random() * 0.5)
                node.kill()
            node.start()
            for load in loads[-PRODUCERS:]:
                load.stop()
        check(node.bootstrap, loads)
        acknowledged = sum(len(load.acknowledged) for load in loads)
    except (AssertionError, KafkaException) as error:
        replay = f"KLAMM_KILL_SEED={seed} KLAMM_KILLS={KILLS} python -m pytest tests/crash/test_kill.py -m 'not slow'"
        raise AssertionError(f"{error}\nagain: {replay}\n{node.log()}") from error
    finally:
        node.kill()
    assert acknowledged > 0, "the load never succeeded"
