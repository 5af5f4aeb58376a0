"""Transactions on brokers of klamm and Apache Kafka 4.3.1, which coordinate and lead side by side, while some are
killed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.interop.apache_kafka import Tools
from tests.interop.test_mixed_replicas import BROKERS, JAVA, KLAMM, MixedBrokers
from tests.support import foreign

pytestmark = pytest.mark.timeout(900)

IDS = 8
ROUNDS = 9
PATIENCE_S = 120.0


@pytest.fixture
def brokers(tools: Tools, tmp_path: Path) -> Iterator[MixedBrokers]:
    foreign.require("java", "mvn")
    made = MixedBrokers(tmp_path, tools)
    try:
        yield made
    finally:
        made.close()


def end(producer: Producer, *, commits: bool) -> bool:
    """Whether the transaction is committed."""
    while True:
        try:
            if commits:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                commits = False
            elif not error.args[0].retriable():
                raise
        else:
            return commits


def read(bootstrap: str, topic: str) -> Counter[bytes]:
    """How often a read_committed consumer reads each value."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(len(BROKERS))])
    found: Counter[bytes] = Counter()
    ended: set[int] = set()
    while len(ended) < len(BROKERS):
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "partitions have an end"
        if message.error() is None:
            found[message.value()] += 1
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def test_either_coordinates_and_either_leads(brokers: MixedBrokers) -> None:
    brokers.create("t")
    brokers.until_isr("t", BROKERS)
    producers = [
        Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": f"id-{number}"}) for number in range(IDS)
    ]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
    listed = brokers.tools("transactions", "--bootstrap-server", brokers.bootstrap, "list").stdout
    coordinators = {int(found) for found in re.findall(r"^id-\d+\s+(\d+)", listed, re.MULTILINE)}
    assert JAVA in coordinators, listed
    assert coordinators & set(KLAMM), listed
    expected: Counter[bytes] = Counter()
    for at in range(ROUNDS):
        for producer in producers:
            producer.begin_transaction()
        for number, producer in enumerate(producers):
            for index in range(len(BROKERS)):
                producer.produce("t", b"%d-%d" % (number, at), partition=index)
        # A kill while partitions are added may make a producer abort a transaction that never began.
        for producer in producers:
            assert producer.flush(PATIENCE_S) == 0
        killed = {3: JAVA, 6: KLAMM[0]}.get(at)
        if killed is not None:
            brokers.kill(killed)
        for number, producer in enumerate(producers):
            if end(producer, commits=(at + number) % 3 != 0):
                expected[b"%d-%d" % (number, at)] = len(BROKERS)
        if killed is not None:
            brokers.start(killed)
            brokers.until_isr("t", BROKERS)
    # A Java producer with transaction.version 2.
    java = ("--topic", "java", "--num-records", "2000", "--record-size", "10", "--throughput", "-1")
    brokers.create("java")
    settings = ("--transactional-id", "java", "--transaction-duration-ms", "50")
    brokers.tools("producer-perf-test", *java, *settings, "--bootstrap-server", brokers.bootstrap)
    assert sum(read(brokers.bootstrap, "java").values()) == 2000
    assert read(brokers.bootstrap, "t") == expected
