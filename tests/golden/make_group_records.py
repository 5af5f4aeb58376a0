"""Makes `tests/golden/group-records.json.xz`: records that Apache Kafka 4.3.1 wrote to `__consumer_offsets`.

Run from the repository's root: `python -m tests.golden.make_group_records`. Classic groups with dynamic and static
members, a consumer group (KIP-848), a share group (KIP-932), plain and transactional commits, a deleted group. Beside
each record stands what Kafka's own `kafka-dump-log --offsets-decoder` reads from it.
"""

from __future__ import annotations

import json
import lzma
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.apache_kafka import KafkaNode, dump, java

TARGET = Path(__file__).with_name("group-records.json.xz")
BUSY = {one for one in ConsumerGroupState if one not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)}
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def wait_assigned(*consumers: Consumer) -> None:
    """Poll until each consumer has partitions."""
    for _ in range(300):
        for consumer in consumers:
            consumer.poll(0.1)
        if all(consumer.assignment() for consumer in consumers):
            return
    raise AssertionError("no assignment")


def wait_left(admin: AdminClient, groups: set[str]) -> None:
    """Wait until none of the groups has members: closing a consumer does not wait for that."""
    deadline = time.monotonic() + 30
    while groups & {one.group_id for one in admin.list_consumer_groups(states=BUSY).result().valid}:
        assert time.monotonic() < deadline, groups
        time.sleep(0.05)


def consumer(node: KafkaNode, group_id: str, **settings: Any) -> Consumer:
    """A consumer of the topic `orders`."""
    base = {"bootstrap.servers": node.bootstrap, "group.id": group_id, "enable.auto.commit": False}
    made = Consumer(base | {key.replace("_", "."): value for key, value in settings.items()})
    made.subscribe(["orders"])
    return made


def fill(node: KafkaNode) -> None:
    """Create every kind of group record."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 4, 1), NewTopic("payments", 1, 1)]).values():
        future.result()
    at = [TopicPartition("orders", 0, 42, "metadata ü"), TopicPartition("payments", 0, 7)]

    dynamic = [consumer(node, "classic-dynamic", client_id=f"c{n}") for n in range(2)]
    wait_assigned(*dynamic)
    dynamic[0].commit(offsets=at, asynchronous=False)
    static = [consumer(node, "classic-static", group_instance_id=f"i{n}") for n in range(2)]
    wait_assigned(*static)
    new = [consumer(node, "consumer-kip848", group_protocol="consumer", client_id=f"n{n}") for n in range(2)]
    wait_assigned(*new)
    new[0].commit(offsets=[TopicPartition(new[0].assignment()[0].topic, new[0].assignment()[0].partition, 5)])

    simple = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "simple"})
    simple.commit(offsets=at, asynchronous=False)
    gone = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "deleted"})
    gone.commit(offsets=at, asynchronous=False)
    gone.close()
    for future in admin.delete_consumer_groups(["deleted"]).values():
        future.result()
    transact(node, simple, commits=True)
    transact(node, simple, commits=False)
    share(node)
    for one in (*dynamic, new[1], simple):
        one.close()
    wait_left(admin, {"classic-dynamic", "simple"})


def transact(node: KafkaNode, simple: Consumer, *, commits: bool) -> None:
    """A transaction that sends offsets."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"t-{commits}"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"x")
    offsets = [TopicPartition("orders", 1, 100 if commits else 200)]
    producer.send_offsets_to_transaction(offsets, simple.consumer_group_metadata())
    if commits:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def share(node: KafkaNode) -> None:
    """A share group with a live member."""
    arguments = ("--bootstrap-server", node.bootstrap, "--topic", "orders", "--group", "share", "--timeout-ms", "8000")
    command = java("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *arguments)
    subprocess.run(command, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def records(raw: bytes) -> Iterator[dict[str, Any]]:
    """The records of an uncompressed segment."""
    at = 0
    while at < len(raw):
        base, size = struct.unpack_from(">qi", raw, at)
        attributes, producer_id, count = (
            struct.unpack_from(layout, raw, at + offset)[0] for layout, offset in ((">h", 21), (">q", 43), (">i", 57))
        )
        assert attributes & 7 == 0, "compressed"
        position = at + 61
        for _ in range(count):
            _, position = varint(raw, position)
            position += 1
            _, position = varint(raw, position)
            delta, position = varint(raw, position)
            fields: list[bytes | None] = []
            for _ in range(2):
                length, position = varint(raw, position)
                fields.append(None if length < 0 else raw[position : position + length])
                position += max(length, 0)
            _, position = varint(raw, position)
            key, value = fields
            assert key is not None
            yield {
                "offset": base + delta,
                "producer_id": producer_id,
                "is_control": bool(attributes & 0x20),
                "key": key.hex(),
                "value": None if value is None else value.hex(),
            }
        at += 12 + size


def kafka_reads(segment: Path) -> dict[int, tuple[str, str]]:
    """The output of Kafka's dump tool for each record's key and value, by offset."""
    found = {}
    for line in dump([segment], "--offsets-decoder").splitlines():
        match = re.match(r"\| offset: (\d+) .*? key: (.*?) payload: (.*)$", line)
        if match:
            found[int(match[1])] = (match[2], match[3])
    return found


def main() -> None:
    """Run Kafka, run the clients, and store the records of the log."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        node = KafkaNode(
            data,
            overrides={
                "group.share.enable": "true",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
            },
        )
        node.format(CLUSTER_ID)
        with node:
            fill(node)
        partitions: dict[str, list[dict[str, Any]]] = {}
        for segment in sorted(data.glob("__consumer_offsets-*/*.log")):
            said = kafka_reads(segment)
            rows = list(records(segment.read_bytes()))
            for row in rows:
                row["kafka_reads"] = said.get(row["offset"])
            partitions[segment.parent.name.rpartition("-")[2]] = rows
    TARGET.write_bytes(lzma.compress(json.dumps(partitions, indent=0).encode(), preset=9))


if __name__ == "__main__":
    main()
