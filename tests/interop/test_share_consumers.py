"""Share consumers of Java and librdkafka in klamm's share groups (KIP-932), on one and three brokers."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from klamm import Cluster
from tests.interop.apache_kafka import libs
from tests.support.foreign import require
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(__file__).with_name("ShareWorker.java")
WAIT_S = 90.0
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
}


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    require("java", "javac", "mvn")
    replicas = {
        "share.coordinator.state.topic.replication.factor": str(request.param),
        "share.coordinator.state.topic.min.isr": str(min(request.param, 2)),
    }
    with Cluster(brokers=request.param, config=CONFIG | replicas) as made:
        yield made


class Delivered(NamedTuple):
    partition: int
    offset: int
    count: int
    value: str


class Worker:
    """A process of `ShareWorker.java`, with its output."""

    def __init__(self, cluster: Cluster, group: str, **settings: str) -> None:
        pairs = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        command = ["java", "-cp", f"{libs()}/*", str(PROGRAM), cluster.bootstrap_servers, group, group, *pairs]
        self.records: list[Delivered] = []
        self.batches: list[int] = []
        self.commits: Counter[str] = Counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["record", partition, offset, count, value]:
                    self.records.append(Delivered(int(partition), int(offset), int(count), value))
                case ["batch", count]:
                    self.batches.append(int(count))
                case ["commit", _, result]:
                    self.commits[result] += 1

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def close(self) -> None:
        """Close the consumer."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._reader.join()


class Group:
    """A share group and its topic, which have the same name."""

    def __init__(self, cluster: Cluster, partitions: int = 1) -> None:
        self.cluster, self.name = cluster, f"s{uuid.uuid4().hex[:10]}"
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.create_topic(self.name, partitions=partitions, replication_factor=len(cluster.brokers))
        self.configure(share_auto_offset_reset="earliest")
        self._workers: list[Worker] = []

    def configure(self, **values: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.name, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result()

    def produce(self, *values: str, partition: int = 0, transactional_id: str | None = None) -> Producer:
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        producer = Producer(settings)
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=partition)
        assert producer.flush(60) == 0
        return producer

    def worker(self, **settings: str) -> Worker:
        made = Worker(self.cluster, self.name, **settings)
        self._workers.append(made)
        return made

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


@pytest.fixture
def make(cluster: Cluster) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def create(partitions: int = 1) -> Group:
        made.append(Group(cluster, partitions))
        return made[-1]

    yield create
    for group in made:
        group.close()


def deliveries(*workers: Worker) -> list[Delivered]:
    return sorted(record for worker in workers for record in worker.records)


def test_records_are_accepted_released_rejected_and_renewed(make: Callable[..., Group]) -> None:
    group = make()
    group.produce("accept", "release", "reject", "renew", "accept")
    worker = group.worker()
    wait_until(lambda: len(worker.records) >= 7, bound_s=WAIT_S)
    group.produce("accept")
    wait_until(lambda: len(worker.records) >= 8, bound_s=WAIT_S)
    worker.close()
    found = [(one.offset, one.count) for one in deliveries(worker)]
    assert found == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1), (3, 1), (4, 1), (5, 1)]
    assert set(worker.commits) == {"ok"}
    again = group.worker()
    group.produce("accept")
    wait_until(lambda: bool(again.records), bound_s=WAIT_S)
    assert [one.offset for one in again.records] == [6], "nothing is delivered again"


def test_members_share_a_partition(make: Callable[..., Group]) -> None:
    group = make()
    workers = [group.worker(max_poll_records="10", share_acquire_mode="record_limit") for _ in range(2)]
    for _ in range(20):
        group.produce(*["accept"] * 25)
    wait_until(lambda: len(deliveries(*workers)) >= 500, bound_s=WAIT_S)
    assert [one.offset for one in deliveries(*workers)] == [*range(500)]
    assert max(count for worker in workers for count in worker.batches) <= 10


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_records_of_a_killed_member_are_delivered_again(make: Callable[..., Group], mode: str) -> None:
    group = make()
    group.produce("accept", "hold", "accept")
    first = group.worker(share_acquire_mode=mode)
    wait_until(lambda: len(first.records) >= 2, bound_s=WAIT_S)
    first.kill()
    group.configure(share_record_lock_duration_ms="60000")
    second = group.worker(share_acquire_mode=mode)
    wait_until(lambda: len(second.records) >= 2, bound_s=WAIT_S)
    assert [(one.offset, one.count) for one in second.records] == [(0, 2), (1, 2)]


def test_only_committed_records_are_delivered(make: Callable[..., Group]) -> None:
    group = make()
    group.configure(share_isolation_level="read_committed")
    worker = group.worker()
    group.produce("one")
    group.produce("aborted", "aborted", transactional_id=group.name).abort_transaction()
    group.produce("two", "three", transactional_id=group.name).commit_transaction()
    wait_until(lambda: len(worker.records) >= 3, bound_s=WAIT_S)
    group.produce("four")
    wait_until(lambda: len(worker.records) >= 4, bound_s=WAIT_S)
    assert [one.value for one in deliveries(worker)] == ["one", "two", "three", "four"]


def test_records_are_delivered_after_their_leader_was_killed(make: Callable[..., Group]) -> None:
    group = make(3)
    if len(group.cluster.brokers) == 1:
        pytest.skip("needs three brokers")
    worker = group.worker()
    group.produce(*["accept"] * 10)
    wait_until(lambda: len(worker.records) >= 10, bound_s=WAIT_S)
    wait_until(lambda: worker.commits["ok"] == len(worker.batches), bound_s=WAIT_S)
    leader = group.admin.list_topics(group.name, timeout=30).topics[group.name].partitions[0].leader
    [killed] = [broker for broker in group.cluster.brokers if broker.id == leader]
    killed.kill()
    try:
        group.produce(*["accept"] * 10)
        wait_until(lambda: {one.offset for one in worker.records} >= {*range(20)}, bound_s=WAIT_S)
    finally:
        killed.start()
    counts = Counter(one.offset for one in worker.records)
    assert all(counts[offset] == 1 for offset in range(10)), "what was accepted is not delivered again"


def test_librdkafkas_share_consumer(make: Callable[..., Group]) -> None:
    from confluent_kafka import ShareConsumer

    group = make()
    group.produce("a", "b", "c")
    consumer = ShareConsumer({"bootstrap.servers": group.cluster.bootstrap_servers, "group.id": group.name})
    consumer.subscribe([group.name])
    found: list[bytes] = []

    def has_all() -> bool:
        for message in consumer.poll(0.5):
            assert message.error() is None
            found.append(message.value())
        return len(found) >= 3

    wait_until(has_all, bound_s=WAIT_S)
    assert all(error is None for error in consumer.commit_sync(30.0).values())
    consumer.close()
    assert found == [b"a", b"b", b"c"]
    worker = group.worker()
    group.produce("d")
    wait_until(lambda: bool(worker.records), bound_s=WAIT_S)
    assert [one.value for one in worker.records] == ["d"]
