"""Three brokers for an application, and their kills."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_processes import BrokerProcess
from tests.support.topic_reading import read_topic

SETTINGS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "group.streams.min.session.timeout.ms": "10000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}
ROUNDS: Final = 3
PATIENCE_S: Final = 180
PARTITIONS: Final = 2
"""Of the topic of `Numbers`."""


def bootstrap(brokers: list[BrokerProcess]) -> str:
    return ",".join(node.bootstrap for node in brokers)


def create_topics(servers: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(name, count, 3) for name, count in partitions.items()]
    for future in admin.create_topics(new, request_timeout=60).values():
        future.result(60)


def while_brokers_die(brokers: list[BrokerProcess], between: Callable[[int], None]) -> None:
    """Kill each broker once, and start it again; `between` runs while it is down."""
    for number in range(ROUNDS):
        node = brokers[number % len(brokers)]
        node.kill()
        between(number)
        node.start(timeout_s=60)


def committed(servers: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """The values that a read_committed consumer finds."""
    records = read_topic(servers, topic, partitions, isolation="read_committed").records
    return {partition: [value for _, value in records[partition]] for partition in range(partitions)}


def producer_of(servers: str) -> Producer:
    """An idempotent producer with one request in flight: with more, librdkafka itself may write a record twice."""
    one = {"max.in.flight.requests.per.connection": 1}
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True, **one})


class Numbers:
    """Produces numbers to a topic until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = producer_of(servers)
        self._topic, self._stopped = topic, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.wait(0.005):
                break
            self._producer.produce(self._topic, str(number), partition=number % PARTITIONS)
            self._producer.poll(0)
        self._producer.flush(PATIENCE_S)

    def stop(self) -> None:
        """Stop, and wait for the acknowledgements."""
        self._stopped.set()
        self._thread.join()
