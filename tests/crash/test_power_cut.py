"""Power cuts while real clients write: acknowledged records are in the log once and in order, despite lost writes.

A recorded node is loaded, killed, restarted, stopped and restarted. From the record of its file changes, folders are
built as power cuts at random points would leave them (unsynced writes and renames lost in part, the last write torn); a
node is started on each, and must keep all that it had acknowledged by then.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from tests.support.power_cuts import PowerCuts, RecordedNode

CUTS = int(os.environ.get("KLAMM_CUTS", "12"))
LIVES_IN_SLOW = 20
CUTS_IN_SLOW = 100
SEED = int(os.environ.get("KLAMM_CUT_SEED", str(random.SystemRandom().randrange(1 << 30))))
PARTITIONS = 3
PRODUCERS = 3
GROUP = "readers"
# Rare events are made frequent.
BUSY = {
    "auto.create.topics.enable": "false",  # a producer would create a deleted topic again
    "log.segment.bytes": "1048576",
    "offsets.topic.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.segment.ms": "300",
}


@dataclass
class Promises:
    """Acknowledgements of clients, each with the length of the record of changes at that time."""

    position: Callable[[], int]
    records: dict[tuple[str, int, int], tuple[int, str]] = field(default_factory=dict)
    """(topic, partition, offset) -> (record length at the acknowledgement, value)."""
    topics: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """(created at, perhaps deleted from) in record lengths."""
    deleted: dict[str, int] = field(default_factory=dict)
    """Record lengths at which topics were deleted."""
    commits: list[tuple[int, int]] = field(default_factory=list)
    """(record length, offset), ascending."""
    asked_commit: int = 0
    fatal: list[str] = field(default_factory=list)
    """The fatal error of an idempotent producer: neither a kill nor a stop may cause one."""

    def delivered(self, error: object, message: object) -> None:
        """A delivery report."""
        if error is None:
            place = (message.topic(), message.partition(), message.offset())  # type: ignore[attr-defined]
            value = message.value().decode()  # type: ignore[attr-defined]
            self.records[place] = (self.position(), value.rstrip("."))

    def first(self) -> int:
        """The record length of the first acknowledgement."""
        return min(start for start, _ in self.topics.values())


def client(bootstrap: str, **more: object) -> dict[str, object]:
    settings = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100, "log_level": 0}
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def produce(node: RecordedNode, promises: Promises, number: int, stop: threading.Event) -> None:
    """An idempotent producer of `<producer>-<index>` in many sizes."""
    rng = random.Random(number)
    settings = client(node.bootstrap, enable_idempotence=True, linger_ms=1, retry_backoff_max_ms=100)
    producer = Producer({**settings, "error_cb": lambda error: error.fatal() and promises.fatal.append(str(error))})
    index = 0
    while not (stop.is_set() or promises.fatal):
        value = f"{number}-{index}".ljust(rng.choice((20, 200, 6000)), ".")
        producer.produce("load", value, partition=rng.randrange(PARTITIONS), on_delivery=promises.delivered)
        index += 1
        producer.poll(0.002)
    producer.flush(20)


def administrate(node: RecordedNode, promises: Promises, stop: threading.Event) -> None:
    """Creates topics, writes a record to each, deletes some."""
    admin = AdminClient(client(node.bootstrap))
    producer = Producer(client(node.bootstrap))
    number = 0
    while not stop.is_set():
        name, number = f"topic-{number}", number + 1
        try:
            admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=10)[name].result(20)
        except KafkaException:
            continue
        promises.topics[name] = (promises.position(), None)
        producer.produce(name, "first", partition=number % 2, on_delivery=promises.delivered)
        producer.flush(20)
        if number % 3 == 0:
            promises.topics[name] = (promises.topics[name][0], promises.position())
            try:
                admin.delete_topics([name], operation_timeout=10)[name].result(20)
            except KafkaException:
                continue
            promises.deleted[name] = promises.position()


def commit(node: RecordedNode, promises: Promises, stop: threading.Event) -> None:
    """Commits increasing offsets."""
    consumer = Consumer(client(node.bootstrap, group_id=GROUP, enable_auto_commit=False))
    while not stop.is_set():
        promises.asked_commit += 1
        offset = promises.asked_commit
        try:
            consumer.commit(offsets=[TopicPartition("load", 0, offset)], asynchronous=False)
        except KafkaException:
            continue
        promises.commits.append((promises.position(), offset))
    consumer.close()


@contextmanager
def load(node: RecordedNode, promises: Promises) -> Iterator[None]:
    """Run all clients at the same time."""
    stop = threading.Event()
    threads = [threading.Thread(target=produce, args=(node, promises, n, stop)) for n in range(PRODUCERS)]
    threads += [threading.Thread(target=work, args=(node, promises, stop)) for work in (administrate, commit)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def live(node: RecordedNode, seconds: float) -> Promises:
    """A life with a kill and a controlled stop."""
    promises = Promises(lambda: node.position)
    node.start()
    try:
        admin = AdminClient(client(node.bootstrap))
        admin.create_topics([NewTopic("load", PARTITIONS, 1)])["load"].result(20)
        promises.topics["load"] = (promises.position(), None)
        with load(node, promises):
            for end in (node.kill, node.stop):
                time.sleep(seconds)
                end()
                node.start()
            time.sleep(seconds)
    finally:
        node.kill()
    return promises


def check(cluster: klamm.Cluster, promises: Promises, cut: int) -> None:
    """Check everything that was acknowledged before the cut."""
    topics = set(cluster.topics())
    for name, (start, end) in promises.topics.items():
        assert not start <= cut < (end or cut + 1) or name in topics, f"topic {name} is lost"
    for name, gone in promises.deleted.items():
        assert gone > cut or name not in topics, f"topic {name} is back"
    found: dict[tuple[str, int, int], str] = {}
    for name in topics & set(promises.topics):
        for record in cluster.records(name):
            found[name, record.partition, record.offset] = (record.value or b"").decode().rstrip(".")
    for place, (start, value) in promises.records.items():
        is_kept = (promises.topics[place[0]][1] or cut + 1) > cut
        assert start > cut or not is_kept or found.get(place) == value, f"{place}: {found.get(place)}, not {value}"
    check_order(found)
    promised = max((offset for start, offset in promises.commits if start <= cut), default=0)
    committed = cluster.committed(GROUP).get(("load", 0), 0)
    assert promised <= committed <= promises.asked_commit, f"committed {committed}, promised {promised}"


def check_order(found: dict[tuple[str, int, int], str]) -> None:
    """The offsets of the load have no gaps; each producer's numbers ascend in each partition, without duplicates."""
    last: dict[tuple[int, str], int] = {}
    following = dict.fromkeys(range(PARTITIONS), 0)
    for (topic, partition, offset), value in found.items():
        if topic == "load":
            assert offset == following[partition], f"partition {partition}: {offset} after {following[partition] - 1}"
            following[partition] += 1
            producer, index = value.split("-")
            assert int(index) > last.get((partition, producer), -1), f"{value} is out of order in {partition}"
            last[partition, producer] = int(index)


def hold_to_promises(folder: Path, seconds: float, cuts: int, seed: int) -> None:
    rng = random.Random(seed)
    node = RecordedNode(folder / "data", overrides=BUSY)
    promises = live(node, seconds)
    assert not promises.fatal, (promises.fatal, node.log())
    assert promises.records, "the load never succeeded"
    assert promises.commits, "no commit succeeded"
    positions = sorted(rng.randrange(promises.first(), node.position + 1) for _ in range(cuts))
    with PowerCuts(node) as power:
        for position in positions:
            target, chance = folder / "left", rng.randrange(1 << 30)
            power.cut(position, chance, target)
            # After a power cut the machine has another boot id.
            for boot_id in target.rglob("klamm-boot-id"):
                boot_id.unlink()
            kept = shutil.copytree(target, folder / "start", copy_function=shutil.copy)
            try:
                with klamm.Cluster(kept, config=BUSY) as cluster:
                    check(cluster, promises, position)
                    cluster.create_topic("goes-on")
            except Exception as error:  # names the cut that replays it
                text = f"cut {position} of {node.changes}, seed {chance}: {error!r}; what was left is in {target}"
                raise AssertionError(text) from error
            shutil.rmtree(target)
            shutil.rmtree(kept)


@pytest.mark.timeout(600)
def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path) -> None:
    hold_to_promises(tmp_path, 0.5, CUTS, SEED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("life", range(1, LIVES_IN_SLOW + 1))
def test_a_power_cut_loses_nothing_in_many_lives(tmp_path: Path, life: int) -> None:
    hold_to_promises(tmp_path, 1 + life % 5, CUTS_IN_SLOW, SEED + life)
