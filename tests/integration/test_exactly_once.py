"""Consume, transform, produce on three brokers that are killed: each record is copied once, with its offset."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from klamm import Cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
PARTITIONS = 3
RECORDS = 600
COPIERS = 3
KILLS = 4
WITHIN_S = 300.0
CALL_S = 30.0
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class Copier(threading.Thread):
    """Copies `input` to `output` until it is stopped, as an application does: after an error it begins again."""

    def __init__(self, servers: str, number: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._id = servers, f"copier-{number}"
        self.is_stopped = threading.Event()
        self.restarts = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self.is_stopped.is_set():
            try:
                self._copy()
            except KafkaException:
                self.restarts += 1
            except BaseException as error:  # shown by the test
                self.failure = error
                raise

    def _copy(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # librdkafka's send_offsets_to_transaction may not return when coordinators have ended, although the
                # brokers have answered all that was sent. Then others take over the partitions of the copier.
                "session.timeout.ms": 6_000,
                "max.poll.interval.ms": 10_000,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._id,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )
        try:
            producer.init_transactions(CALL_S)
            consumer.subscribe(["input"])
            while not self.is_stopped.is_set():
                found = [one for one in consumer.consume(20, 0.5) if one.error() is None]
                if found:
                    self._copy_in_transaction(consumer, producer, found)
        finally:
            with suppress(KafkaException, RuntimeError):
                consumer.close()

    def _copy_in_transaction(self, consumer: Consumer, producer: Producer, found: list[object]) -> None:
        """Raises KafkaException: then the transaction is aborted, here or when the id is used again."""
        producer.begin_transaction()
        try:
            for message in found:
                producer.produce("output", message.value(), partition=message.partition())  # type: ignore[attr-defined]
            offsets = consumer.position(consumer.assignment())
            retried(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_S))
            retried(lambda: producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                retried(lambda: producer.abort_transaction(CALL_S))
            raise


def retried(call: object) -> None:
    """Repeat what librdkafka allows to be repeated."""
    end = time.monotonic() + CALL_S
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise


def test_each_record_is_copied_once() -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        fill(cluster)
        copiers = [Copier(cluster.bootstrap_servers, number) for number in range(COPIERS)]
        for copier in copiers:
            copier.start()
        try:
            for kill in range(KILLS):
                wait_until(
                    lambda kill=kill: len(output(cluster)) >= RECORDS * (kill + 1) // (KILLS + 2),  # type: ignore[misc]
                    "records are copied",
                    bound_s=WITHIN_S,
                )
                broker = cluster.brokers[kill % 3]
                broker.kill()
                broker.start()
            wait_until(lambda: is_done(cluster), "all records are copied", bound_s=WITHIN_S)
        finally:
            for copier in copiers:
                copier.is_stopped.set()
        for copier in copiers:
            copier.join(CALL_S)
            assert copier.failure is None
        assert Counter(output(cluster)) == Counter(b"%d" % number for number in range(RECORDS))
        wait_until(
            lambda: {one.state for one in cluster.transactions()} <= {"Empty", "CompleteCommit", "CompleteAbort"},
            "no transaction stays open",
            bound_s=WITHIN_S,
        )


def fill(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("input", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(CALL_S) == 0


def output(cluster: Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("output", isolation_level="read_committed")]


def is_done(cluster: Cluster) -> bool:
    """Whether the committed offsets of the group are the end of the input."""
    committed = cluster.committed("copiers")
    return sum(committed.values()) == RECORDS


def test_case_68_pending_offsets_survive_restarts() -> None:
    """A transaction goes on after all brokers were killed, and its marker is replayed after the next kills."""
    place = TopicPartition("input", 0, 5)
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("input", replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "one"})
        producer.init_transactions(CALL_S)
        group = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
        producer.begin_transaction()
        retried(lambda: producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), CALL_S))
        restart(cluster)
        assert cluster.committed("readers") == {}
        retried(lambda: producer.commit_transaction(CALL_S))
        wait_until(lambda: cluster.committed("readers") == {("input", 0): 5}, "the marker is written")
        restart(cluster)
        assert cluster.committed("readers") == {("input", 0): 5}
        group.close()


def restart(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        broker.kill()
        broker.start()
