"""Apache Kafka 4.3.1 opens a directory that klamm wrote, and its dump tool reads every file in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import apache_kafka
from tests.interop.test_golden import read
from tests.support import foreign
from tests.support.node_process import NodeProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "100",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "offsets.topic.num.partitions": "4",
}

pytestmark = pytest.mark.timeout(600)


def fill(node: NodeProcess) -> None:
    """Write with every codec, several segments, a group with offsets, a topic with configs, a deleted topic."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topics = [NewTopic(f"codec-{codec}", 1, 1) for codec in CODECS]
    topics += [NewTopic("configured", 3, 1, config={"retention.ms": "12345"}), NewTopic("gone", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
        )
        for number in range(3000):
            producer.produce(f"codec-{codec}", key=str(number), value=f"{codec} {number} ".ljust(500, "."))
            producer.poll(0)
        assert producer.flush(30) == 0
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "moved", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe(["codec-none"])
    assert consumer.poll(30) is not None
    consumer.commit(offsets=[TopicPartition("codec-none", 0, 123)], asynchronous=False)
    consumer.close()
    admin.delete_topics(["gone"])["gone"].result()


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of klamm, after a controlled shutdown or a kill."""
    foreign.require("java", "mvn")
    data = tmp_path_factory.mktemp(request.param) / "data"
    node = NodeProcess(data, overrides=SMALL)
    node.start()
    try:
        fill(node)
        if request.param == "stopped":
            assert node.stop() == 0, node.log()
    finally:
        node.kill()
    return data


def dumpable(data: Path, suffix: str, *, was_killed: bool) -> list[Path]:
    """The closed files: a killed node leaves active segments with a preallocated tail, and without indexes."""
    found = []
    for folder in sorted(data.glob("*-*")):
        files = [] if folder.name.startswith("__cluster_metadata") else sorted(folder.glob(f"*{suffix}"))
        active = max((file.stem for file in folder.glob("*.log")), default="")
        found += [file for file in files if not (was_killed and file.stem == active) or suffix == ".snapshot"]
    return found


def test_every_file_can_be_dumped(written: Path) -> None:
    was_killed = written.parent.name.startswith("killed")
    for suffix, options in ((".log", ("--deep-iteration",)), (".index", ()), (".timeindex", ()), (".snapshot", ())):
        files = dumpable(written, suffix, was_killed=was_killed)
        assert files or suffix == ".snapshot"
        if files:
            said = apache_kafka.dump(files, *options)
            for complaint in ("isvalid: false", "Mismatches", "Found timestamp mismatch", "Error"):
                assert complaint not in said, said[-3000:]
    metadata = written / "__cluster_metadata-0"
    snapshots = sorted(metadata.glob("*.checkpoint"))
    assert snapshots
    assert '"type":"REGISTER_BROKER_RECORD"' in apache_kafka.dump(snapshots[-1:], "--cluster-metadata-decoder")
    if not was_killed:
        said = apache_kafka.dump(sorted(metadata.glob("*.log")), "--cluster-metadata-decoder")
        assert '"type":"TOPIC_RECORD"' in said


def test_kafka_serves_the_same(written: Path) -> None:
    with apache_kafka.KafkaNode(written) as kafka:
        for codec in CODECS:
            rows = read(kafka.bootstrap, f"codec-{codec}", "read_uncommitted")
            assert [row[0] for row in rows] == list(range(3000))
            assert [row[3].split(" ")[1] for row in rows] == [str(number) for number in range(3000)]
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        metadata = admin.list_topics(timeout=20)
        assert "gone" not in metadata.topics
        assert len(metadata.topics["configured"].partitions) == 3
        described = apache_kafka.tool(
            "consumer-groups", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", "moved", timeout_s=90
        ).stdout
        assert " 123 " in described
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("codec-none", b"by Kafka")
        assert producer.flush(30) == 0
    # And back to klamm.
    node = NodeProcess(written, overrides=SMALL)
    with node:
        deadline = time.monotonic() + 20
        rows = read(node.bootstrap, "codec-none", "read_uncommitted")
        assert time.monotonic() < deadline
        assert (rows[-1][0], rows[-1][3]) == (3000, "by Kafka")
