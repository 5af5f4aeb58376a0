"""Makes `tests/golden/kafka-4.3.1/`: files that Apache Kafka 4.3.1 wrote, so that format tests need no Java.

Run from the repository's root: `python -m tests.golden.make_kafka_corpus`. Two packed data directories: `clean` was
shut down, `killed` was killed while it was serving. `expected.json` is what Kafka's clients read from them.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.apache_kafka import KafkaNode

HERE = Path(__file__).with_name("kafka-4.3.1")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
BASE_TIMESTAMP_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "log.index.size.max.bytes": "4096",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.retention.ms": "-1",
}


def produce(producer: Producer, topic: str, count: int, mark: str) -> None:
    """`count` records with key, value, one header and a timestamp each."""
    for index in range(count):
        producer.produce(
            topic,
            key=f"k{index % 7}",
            value=f"{mark}-{index}-" + "x" * (index % 50),
            headers=[("mark", mark.encode())],
            timestamp=BASE_TIMESTAMP_MS + index,
            partition=0,
        )
    producer.flush()


def fill(node: KafkaNode) -> None:
    """Every codec, idempotent and transactional batches, aborts, tombstones, a compacted topic, a deleted one."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    compacted = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    topics = [NewTopic(f"codec-{codec}", 1, 1) for codec in CODECS]
    topics += [
        NewTopic("idempotent", 2, 1),
        NewTopic("transactional", 1, 1),
        NewTopic("compacted", 1, 1, config=compacted),
        NewTopic("deleted", 1, 1),
        NewTopic("empty", 3, 1, config={"retention.ms": "12345"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result()
    for codec in CODECS:
        settings = {"bootstrap.servers": node.bootstrap, "compression.type": codec, "linger.ms": 50}
        produce(Producer(settings), f"codec-{codec}", 100, codec)
    produce(Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True}), "idempotent", 50, "idem")
    transact(node)
    compact(node)
    commit(node)
    admin.delete_topics(["deleted"])["deleted"].result()


def transact(node: KafkaNode) -> None:
    """Committed, aborted, committed, and one that stays open."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "golden"})
    producer.init_transactions()
    for mark, keep in (("first", True), ("aborted", False), ("second", True)):
        producer.begin_transaction()
        produce(producer, "transactional", 5, mark)
        if keep:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.begin_transaction()
    produce(producer, "transactional", 3, "open")


def compact(node: KafkaNode) -> None:
    """Updates and tombstones, in segments that are old enough to be cleaned."""
    for round_number in range(6):
        producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
        produce(producer, "compacted", 40, f"round{round_number}")
        producer.produce("compacted", key="k3", value=None, partition=0)
        producer.flush()
        # Segments roll by time, so the pause is part of the recorded data.
        time.sleep(0.7)


def commit(node: KafkaNode) -> None:
    """A group with committed offsets, whose member has left."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "golden-group", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe(["codec-none"])
    for _ in range(60):
        if consumer.poll(1.0) is not None:
            break
    consumer.commit(offsets=[TopicPartition("codec-none", 0, 42)], asynchronous=False)
    consumer.close()


def read(node: KafkaNode, topic: str, partition: int, isolation: str) -> list[Any]:
    """[offset, timestamp, key, value] of every record that a consumer sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows: list[Any] = []
    while True:
        message = consumer.poll(10)
        if message is None or message.error() is not None:
            break
        key, value = message.key(), message.value()
        rows.append(
            [message.offset(), message.timestamp()[1], key and key.decode(), None if value is None else value.decode()]
        )
    consumer.close()
    return rows


def expected(node: KafkaNode) -> dict[str, Any]:
    """What the clients read."""
    names = [f"codec-{codec}" for codec in CODECS] + ["idempotent", "transactional", "compacted"]
    topics = {name: read(node, name, 0, "read_uncommitted") for name in names}
    return {
        "cluster_id": CLUSTER_ID,
        "records": topics,
        "read_committed": {"transactional": read(node, "transactional", 0, "read_committed")},
        "committed": {"golden-group": {"codec-none": {"0": 42}}},
        "configs": {"empty": {"retention.ms": "12345"}},
        "partitions": {"idempotent": 2, "empty": 3},
    }


def pack(data: Path, name: str) -> None:
    """Pack `data` as `name.tar.xz`, without metadata of this machine."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with lzma.open(HERE / f"{name}.tar.xz", "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        tar.add(data, arcname=name, filter=plain)


def main() -> None:
    """Create both directories."""
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        node = KafkaNode(data, overrides=SETTINGS)
        node.format(CLUSTER_ID)
        node.start()
        fill(node)
        facts = expected(node)
        copy = Path(folder) / "killed"
        node.kill()
        shutil.copytree(data, copy)
        pack(copy, "killed")
        node.start()
        node.stop()
        pack(data, "clean")
        (HERE / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
