"""Four nodes are killed, stopped, paused and cut off, their disks fill up, and partitions move between nodes and
between log directories, two of these at a time, while clients write and read: all that clients see is possible with a
correct log (`tests/support/log_history.py`).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.admin import log_dirs, reassignments
from klamm.admin.client import Client
from klamm.cli.cluster.cluster_folder import NodeFolder
from klamm.client import ClientError
from klamm.protocol.topic_partition import TopicPartition as Place
from tests.support.broker_processes import ProxiedBroker, created
from tests.support.full_disk import SmallDisk, small_disk, with_mounts
from tests.support.log_history import LogHistory
from tests.support.proxy import HOST
from tests.support.topic_reading import read_topic
from tests.support.waiting import wait_until

NODES: Final = 4
PARTITIONS: Final = 6
PRODUCERS: Final = 3
CONSUMERS: Final = 2
TOPIC: Final = "t"
FAULTS: Final = 12
FAULTS_AT_ONCE: Final = 2
DISK_MIB: Final = 64
FAULTS_IN_SLOW: Final = 60
LIVES_IN_SLOW: Final = 10
BOUND_S: Final = 120.0
SEED: Final = int(os.environ.get("KLAMM_HISTORY_SEED", str(random.SystemRandom().randrange(1 << 30))))
CONFIG: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "log.segment.bytes": "1048576",
}


class Node(ProxiedBroker):
    """A node with a second log directory, on a small disk."""

    def __init__(self, files: NodeFolder, disk: SmallDisk) -> None:
        super().__init__(files)
        self.disk = disk
        self.dirs = (files.path / "data", disk.path / "data")
        self.add_log_dir(self.dirs[1])


class Nodes:
    """The processes and their faults. Each fault ends before the test does."""

    def __init__(self, folder: Path, disks: list[SmallDisk], rng: random.Random) -> None:
        self._rng = rng
        self.all = [Node(*both) for both in zip(created(folder, NODES, CONFIG), disks, strict=True)]
        self.bootstrap = ",".join(f"{HOST}:{node.proxy.port}" for node in self.all)
        self.said: list[str] = []
        self._well = list(self.all)  # nodes without a fault
        self._choosing = threading.Lock()
        for node in self.all:
            node.launch()

    def faults(self, count: int) -> None:
        """So many faults, `FAULTS_AT_ONCE` of them at a time."""
        with ThreadPoolExecutor(FAULTS_AT_ONCE) as pool:
            for done in [pool.submit(self._fault) for _ in range(count)]:
                done.result()

    def _fault(self) -> None:
        """Start and end one fault of one node, or start a move of replicas."""
        kinds = self._kill, self._kill, self._pause, self._stop, self._cut, self._move, self._move_dirs, self._fill
        with self._choosing:
            node, seconds = self._rng.choice(self._well), self._rng.uniform(0.2, 2.0)
            kind = self._rng.choice(kinds)
            self._well.remove(node)
            self.said.append(f"{kind.__name__.strip('_')} {node.data.name} {seconds:.1f} s")
        try:
            kind(node, seconds)
        finally:
            self._well.append(node)

    def _kill(self, node: Node, seconds: float) -> None:
        node.kill()
        time.sleep(seconds)
        node.launch()

    def _stop(self, node: Node, seconds: float) -> None:
        node.stop(BOUND_S)
        time.sleep(seconds / 4)
        node.launch()

    def _pause(self, node: Node, seconds: float) -> None:
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(2 * seconds)  # sometimes longer than a session
        os.kill(node.pid, signal.SIGCONT)

    def _cut(self, node: Node, seconds: float) -> None:
        """Clients and followers cannot connect to it. It can connect to the others, and the controllers to it."""
        node.proxy.cut()
        time.sleep(2 * seconds)
        node.proxy.heal()

    def _move(self, _node: Node, seconds: float) -> None:
        """The move continues during the next fault."""
        ids = range(1, NODES + 1)
        wanted = {
            Place(TOPIC, at): tuple(self._rng.sample(ids, 3)) for at in range(PARTITIONS) if self._rng.random() < 0.5
        }
        with contextlib.suppress(ClientError), Client(self.bootstrap, timeout_s=10) as client:
            reassignments.reassign(client, wanted)
        time.sleep(seconds / 4)

    def _move_dirs(self, node: Node, seconds: float) -> None:
        """The move continues during the next fault."""
        places = [Place(TOPIC, at) for at in range(PARTITIONS) if self._rng.random() < 0.5]
        path = str(self._rng.choice(node.dirs))
        with contextlib.suppress(ClientError), Client(self.bootstrap, timeout_s=10) as client:
            log_dirs.move(client, node.id, path, places)
        time.sleep(seconds / 4)

    def _fill(self, node: Node, seconds: float) -> None:
        """A full log directory fails, and is used again after the next start."""
        node.disk.fill()
        time.sleep(2 * seconds)
        node.disk.free()
        node.stop(BOUND_S)
        node.launch()

    def log(self) -> str:
        return "\n".join([f"seed {SEED}", *self.said, *(node.log()[-2000:] for node in self.all)])


def produce(nodes: Nodes, history: LogHistory, number: int, stop: threading.Event) -> None:
    """An idempotent producer to every partition in turn."""
    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "enable.idempotence": True,
        # With more requests in flight librdkafka may write records twice: if NOT_ENOUGH_REPLICAS for one request makes
        # the next one out of order, it bumps the producer epoch and sends again whatever is not acknowledged.
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 1,
        "log_level": 0,
    }
    producer = Producer(settings)

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        if error is None and value is not None and partition is not None and offset is not None:
            history.on_acknowledged(partition, offset, value.decode())

    count = 0
    while not stop.is_set():
        value, partition = f"{number}-{count}", count % PARTITIONS
        history.on_send(partition, value)
        producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
        count += 1
        producer.poll(0.002)
    producer.flush(BOUND_S)


def consume(nodes: Nodes, history: LogHistory, number: int, stop: threading.Event) -> None:
    """A group member. After each assignment it may receive uncommitted records again."""
    assignments = 0

    def on_assign(_: Consumer, __: list[TopicPartition]) -> None:
        nonlocal assignments
        assignments += 1

    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "session.timeout.ms": 6000,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC], on_assign=on_assign)
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        history.on_poll(f"{number}.{assignments}", partition, offset, value.decode())
    consumer.close()


@contextlib.contextmanager
def running(target: object, nodes: Nodes, history: LogHistory, count: int) -> Iterator[threading.Event]:
    """Client threads for the block."""
    stop = threading.Event()
    threads = [threading.Thread(target=target, args=(nodes, history, n, stop)) for n in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def create_topic(nodes: Nodes) -> None:
    """Create the topic as soon as enough brokers are registered."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})

    def is_created() -> bool:
        try:
            brokers = admin.list_topics(timeout=5).brokers
            if len(brokers) == NODES:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        except KafkaException:
            return False
        return len(brokers) == NODES

    wait_until(is_created, nodes.log, bound_s=BOUND_S)


def hold_to_history(folder: Path, disks: list[SmallDisk], faults: int, seed: int) -> None:
    nodes, history = Nodes(folder, disks, random.Random(seed)), LogHistory()
    try:
        create_topic(nodes)
        with running(consume, nodes, history, CONSUMERS):
            with running(produce, nodes, history, PRODUCERS):
                wait_until(lambda: len(history.acknowledged) > 100, nodes.log, bound_s=BOUND_S)
                nodes.faults(faults)
                count = len(history.acknowledged)
                wait_until(lambda: len(history.acknowledged) > count + 100, nodes.log, bound_s=BOUND_S)
            log = read_topic(nodes.bootstrap, TOPIC, PARTITIONS, bound_s=BOUND_S).records
            last = {(partition, value) for partition, records in log.items() for _, value in records}

            def are_polled() -> bool:
                polls = list(history.polled.values())
                return last <= {(partition, value) for one in polls for partition, _, value in list(one)}

            with contextlib.suppress(TimeoutError):  # a missing record is a finding
                wait_until(are_polled, bound_s=BOUND_S)
        findings = history.findings(log)
        assert not findings, "\n".join(
            [f"{len(findings)} anomalies, replay: KLAMM_HISTORY_SEED={seed}", *map(str, findings[:20]), nodes.log()]
        )
    finally:
        for node in nodes.all:
            with contextlib.suppress(ProcessLookupError):
                node.kill()
            node.proxy.close()


@pytest.fixture
def disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[SmallDisk]]:
    """A small disk for each node; None if the test has run in another process (tests.support.full_disk)."""
    with contextlib.ExitStack() as stack:
        count = NODES if with_mounts(request) else 0
        yield [stack.enter_context(small_disk(tmp_path / f"disk-{at}", DISK_MIB)) for at in range(count)]


@pytest.mark.timeout(600)
def test_no_client_sees_an_impossible_history(tmp_path: Path, disks: list[SmallDisk]) -> None:
    if disks:
        hold_to_history(tmp_path / "cluster", disks, FAULTS, SEED)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("life", range(1, LIVES_IN_SLOW + 1))
def test_no_client_sees_an_impossible_history_in_many_lives(tmp_path: Path, disks: list[SmallDisk], life: int) -> None:
    if disks:
        hold_to_history(tmp_path / "cluster", disks, FAULTS_IN_SLOW, SEED + life)
