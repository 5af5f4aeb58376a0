"""Three brokers are killed while members of a share group read (KIP-932): no acknowledgement with a response is lost,
and every record is delivered in the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.admin import configs
from klamm.admin import groups as group_admin
from klamm.admin.client import Client
from klamm.cli.records.share_reader import ShareReader
from klamm.client import ClientError
from klamm.protocol.messages.share_sessions import AcknowledgementBatch, AcknowledgeType
from klamm.protocol.topic_partition import TopicPartition
from tests.support.broker_processes import BrokerProcess, created
from tests.support.waiting import wait_until

NODES: Final = 3
PARTITIONS: Final = 3
MEMBERS: Final = 2
GROUP: Final = "workers"
TOPIC: Final = "t"
FAULTS: Final = 3
FAULTS_IN_SLOW: Final = 40
LIVES_IN_SLOW: Final = 5
BOUND_S: Final = 240.0
SEED: Final = int(os.environ.get("KLAMM_HISTORY_SEED", str(random.SystemRandom().randrange(1 << 30))))
CONFIG: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.delivery.count.limit": "10",
}

Place = tuple[int, int]
"""Partition and offset."""


class ShareHistory:
    """What producers and members have seen, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.produced: set[Place] = set()
        self.delivered: set[Place] = set()
        self.accepted: set[Place] = set()
        self.findings: list[str] = []

    def on_produced(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            with self._lock:
                self.produced.add((partition, offset))

    def on_delivered(self, where: TopicPartition, offset: int, count: int | None) -> None:
        place = where.partition, offset
        with self._lock:
            self.delivered.add(place)
            if place in self.accepted:
                self.findings.append(f"{place} was accepted, and is delivered again, for the {count}. time")

    def on_acknowledged(self, where: TopicPartition, batches: Sequence[AcknowledgementBatch]) -> None:
        with self._lock:
            for batch in batches:
                if batch.acknowledge_types == (AcknowledgeType.ACCEPT,):
                    self.accepted |= {(where.partition, at) for at in range(batch.first_offset, batch.last_offset + 1)}

    def missing(self) -> set[Place]:
        """Records that were not delivered."""
        with self._lock:
            return self.produced - self.delivered


class Nodes:
    """The broker processes."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self.said: list[str] = []
        self._all = [BrokerProcess(files) for files in created(folder, NODES, CONFIG)]
        for node in self._all:
            node.launch()
        self.bootstrap = ",".join(node.bootstrap for node in self._all)

    def kill_one(self) -> None:
        """SIGKILL, and a restart after a while."""
        node, seconds = self._rng.choice(self._all), self._rng.uniform(0.2, 6.0)
        self.said.append(f"kill {node.data.name}, start after {seconds:.1f} s")
        node.kill()
        time.sleep(seconds)
        node.launch()

    def close(self) -> None:
        for node in self._all:
            with contextlib.suppress(ProcessLookupError):
                node.kill()

    def log(self) -> str:
        return "\n".join(
            [f"replay: KLAMM_HISTORY_SEED={SEED}", *self.said, *(node.log()[-2000:] for node in self._all)]
        )


def produce(nodes: Nodes, history: ShareHistory, stop: threading.Event) -> None:
    settings = {"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    producer = Producer(settings)
    count = 0
    while not stop.is_set():
        producer.produce(TOPIC, str(count), partition=count % PARTITIONS, on_delivery=history.on_produced)
        count += 1
        producer.poll(0.005)
    producer.flush(BOUND_S)


def consume(nodes: Nodes, history: ShareHistory, stop: threading.Event) -> None:
    """A member; after an error another one starts. Records that it has not acknowledged become available again."""
    while not stop.is_set():
        with contextlib.suppress(ClientError), Client(nodes.bootstrap, timeout_s=10) as client:
            accept = AcknowledgeType.ACCEPT
            reader = ShareReader(client, GROUP, TOPIC, accept, follow=True, on_acknowledged=history.on_acknowledged)
            with reader:
                while not stop.is_set():
                    for one in reader.poll():
                        history.on_delivered(one.where, one.record.offset, one.delivery_count)
                        reader.advance(one.where, one.record.offset)
        time.sleep(0.1)


@contextlib.contextmanager
def running(target: object, nodes: Nodes, history: ShareHistory, count: int) -> Iterator[None]:
    """Client threads for the block."""
    stop = threading.Event()
    threads = [threading.Thread(target=target, args=(nodes, history, stop)) for _ in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def prepare(nodes: Nodes) -> None:
    """As soon as the brokers are registered, create the topic, and a group that reads it from its first record."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})

    def is_prepared() -> bool:
        try:
            if len(admin.list_topics(timeout=5).brokers) < NODES:
                return False
            if TOPIC not in admin.list_topics(timeout=5).topics:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES)])[TOPIC].result(30)
            with Client(nodes.bootstrap) as client:
                configs.alter(client, "group", GROUP, {"share.auto.offset.reset": "earliest"})
        except (KafkaException, ClientError):
            return False
        return True

    wait_until(is_prepared, nodes.log, bound_s=BOUND_S)


def has_no_lag(nodes: Nodes) -> bool:
    """Whether every record is accepted, including those whose response went to a closed connection."""
    with contextlib.suppress(ClientError), Client(nodes.bootstrap, timeout_s=10) as client:
        lags = [one.lag for one in group_admin.describe(client, GROUP).positions]
        return lags == [0] * PARTITIONS
    return False


def hold_to_history(folder: Path, faults: int, seed: int) -> None:
    nodes, history = Nodes(folder, random.Random(seed)), ShareHistory()
    try:
        prepare(nodes)
        with running(consume, nodes, history, MEMBERS):
            with running(produce, nodes, history, 1):
                for _ in range(faults):
                    count = len(history.accepted)
                    wait_until(lambda count=count: len(history.accepted) > count + 100, nodes.log, bound_s=BOUND_S)  # type: ignore[misc]
                    nodes.kill_one()
            missing = lambda: f"missing: {sorted(history.missing())[:20]}\n{nodes.log()}"  # noqa: E731
            wait_until(lambda: not history.missing(), missing, bound_s=BOUND_S)
            wait_until(lambda: has_no_lag(nodes), nodes.log, bound_s=BOUND_S)
        assert not history.findings, "\n".join([*history.findings[:20], nodes.log()])
    finally:
        nodes.close()


@pytest.mark.timeout(1200)
def test_no_answered_acknowledgement_is_lost(tmp_path: Path) -> None:
    hold_to_history(tmp_path / "cluster", FAULTS, SEED)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("life", range(1, LIVES_IN_SLOW + 1))
def test_no_answered_acknowledgement_is_lost_in_many_lives(tmp_path: Path, life: int) -> None:
    hold_to_history(tmp_path / "cluster", FAULTS_IN_SLOW, SEED + life)
