"""Consume, transform, produce on three brokers that are killed: each record and its offset are copied exactly once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from klamm import Cluster
from tests.support.copier import CALL_S, Settings, retried
from tests.support.transaction_clients import CopierProcess
from tests.support.transaction_history import Copied
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
PARTITIONS = 3
RECORDS = 600
COPIERS = 3
KILLS = 4
WITHIN_S = 300.0
SESSION = {"session.timeout.ms": 6_000}
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def test_each_record_is_copied_once(tmp_path: Path) -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        fill(cluster)
        copiers = [
            CopierProcess(tmp_path, Settings(cluster.bootstrap_servers, f"copier-{number}", consumer=SESSION))
            for number in range(COPIERS)
        ]

        def is_copied(number: int) -> bool:
            for copier in copiers:
                copier.look_after()
            return len(output(cluster)) >= number

        try:
            for copier in copiers:
                copier.start()
            for kill in range(KILLS):
                wait_until(partial(is_copied, RECORDS * (kill + 1) // (KILLS + 2)), bound_s=WITHIN_S)
                broker = cluster.brokers[kill % 3]
                broker.kill()
                broker.start()
            wait_until(partial(is_copied, RECORDS), "all records are copied", bound_s=WITHIN_S)
            wait_until(lambda: is_done(cluster), "the offsets are committed", bound_s=WITHIN_S)
            for copier in copiers:
                copier.stop()
        finally:
            for copier in copiers:
                copier.kill()
        assert Counter(output(cluster)) == Counter(str(number) for number in range(RECORDS))
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


def output(cluster: Cluster) -> list[str]:
    """The copied values that read_committed finds."""
    values = (record.value for record in cluster.records("output", isolation_level="read_committed"))
    return [Copied.decode(value.decode()).value for value in values if value is not None]


def is_done(cluster: Cluster) -> bool:
    """Whether the group's committed offsets are at the end of the input."""
    committed = cluster.committed("copiers")
    return sum(committed.values()) == RECORDS


def test_pending_offsets_survive_restarts() -> None:
    """A transaction continues after all brokers were killed, and its marker is replayed after they are killed again."""
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
