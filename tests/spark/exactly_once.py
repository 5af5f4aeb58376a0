"""A query whose tasks run without Spark's JVM, and the resulting records in a topic of Apache Kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client import KafkaClient

if TYPE_CHECKING:
    from klamm.spark.options.sink_options import SinkOptions
    from klamm.spark.sink.sink_exactly_once import Delivered
    from klamm.spark.sink.sink_tokens import TaskIdentity

CLUSTER_ID = "FmLEJzC1oDM5WR89ieSnJg"
BOUND_S = 800


def make(kafka: str, name: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    # The records of the tests have old timestamps.
    admin.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1"})])[name].result(60)


def committed(kafka: str, topic: str, partitions: int = 2) -> list[list[bytes]]:
    """All values by partition, read by a read_committed consumer of librdkafka; no transaction may be open."""
    options = {"bootstrap.servers": kafka, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(options | {"isolation.level": "read_committed", "enable.partition.eof": True})
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + BOUND_S
    try:
        # A transaction is decided when EndTxn is answered; it becomes readable with the markers that are written later.
        with KafkaClient(kafka) as all_of_it, KafkaClient(kafka, {"isolation.level": "read_committed"}) as stable:
            ends = dict.fromkeys(range(partitions), -1)
            while (reached := stable.offsets(topic, ends)) != all_of_it.offsets(topic, ends):
                assert time.monotonic() < deadline, f"a transaction stays open below {reached}"
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = consumer.poll(5)
            assert time.monotonic() < deadline
            if message is None:
                continue
            if message.error() is not None:
                at_end.add(message.partition())
            else:
                found[message.partition()].append(message.value() or b"")
        return found
    finally:
        consumer.close()


class Query:
    """A query whose tasks run in this process, one after the other."""

    def __init__(self, kafka: str, topic: str, name: str) -> None:
        # Import it here: otherwise each forked task would import pyspark, which takes most of a task's time.
        from klamm.spark.options.sink_options import parse_sink
        from klamm.spark.sink import sink, sink_exactly_once

        self._sink, self._once = sink, sink_exactly_once
        given = {"kafka.bootstrap.servers": kafka, "topic": topic, "deliveryGuarantee": "exactly-once"}
        self.options: SinkOptions = parse_sink(given, False, is_stream=True)
        self.topic = topic
        self.name = name

    def task(self, partition: int, batch: int = 0, run: str = "run1") -> TaskIdentity:
        from klamm.spark.sink.sink_tokens import TaskIdentity

        return TaskIdentity(self.name, run, batch, partition)

    def write(self, task: TaskIdentity, *values: bytes, partition: int = 0) -> Delivered:
        """The work of a task whose partition of the plan has these values; each goes to one partition of the topic."""
        rows = pa.record_batch(
            {"value": pa.array(values, pa.binary()), "partition": pa.array([partition] * len(values), pa.int32())}
        )
        sink = self._sink
        return self._once.write_once(self.options, task, [(self.topic, rows)], sink.produce, sink.digest)

    def finish(self, *messages: Delivered) -> None:
        self._once.finish(self.options, messages)

    def give_up(self, *messages: Delivered) -> None:
        self._once.give_up(self.options, messages)

    def dies_before_commit(self, task: TaskIdentity, *values: bytes) -> KafkaClient:
        """A task that dies with a complete transaction, before its commit."""
        from klamm.spark.cluster_view import connect
        from klamm.spark.sink.sink_tokens import Rows, Token, name_of_query

        prefix = self.options.transactional_id_prefix
        client = connect({**self.options.client, "transactional.id": task.name(prefix)})
        client.init_transactions()
        client.begin_transaction()
        client.produce(self.topic, 0, None, pa.array(values, pa.binary()))
        client.flush()
        token = Token(task.batch, task.partition, task.run, Rows(len(values), 0))
        for group in (task.name(prefix), name_of_query(prefix, self.name)):
            client.add_offsets(group, {self.topic: {0: task.batch}}, token.metadata())
        return client
