"""Apache Kafka reads snapshots that klamm wrote: with its dump tool, and on a node that starts from one."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from klamm._engine.metadata import Image, MetadataReplayError
from klamm._engine.quorum import load_snapshot, write_snapshot
from klamm.protocol.generated import metadata_records as records
from tests.interop.apache_kafka import KafkaNode, dump, running, tool
from tests.support.foreign import require

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(image: Image, folder: Path, end_offset: int, epoch: int) -> Path:
    path = folder / f"{end_offset:020}-{epoch:010}.checkpoint"
    write_snapshot(path, image, epoch=epoch, last_contained_log_timestamp_ms=now_ms(), now_ms=now_ms())
    return path


def read_log(folder: Path) -> Image:
    image = Image()
    for segment in sorted(folder.glob("*.log")):
        image = image.apply_batches(segment.read_bytes())
    return image


def test_the_dump_tool_reads_every_record(tmp_path: Path) -> None:
    require("java", "mvn")
    golden = Path(__file__).parents[1] / "golden/metadata/records.jsonl"
    image = Image().apply([records.encode(records.FeatureLevelRecord(name="metadata.version", feature_level=30), 0)])
    wanted = {0, 2, 4, 11, 14, 15, 18, 27}
    for line in map(json.loads, golden.read_text().splitlines()):
        record = records.decode(bytes.fromhex(line["hex"]))
        if line["type"] not in wanted or (line["type"] == 11 and line["fields"]["mechanism"] not in (1, 2)):
            continue
        try:
            image = image.apply([records.encode_at(record, 30)])
        except MetadataReplayError:
            continue  # Random fields: a listener without a name, a topic twice.
    dumped = dump([write(image, tmp_path, 500, 3)], "--cluster-metadata-decoder")
    assert "SnapshotHeader" in dumped
    assert "SnapshotFooter" in dumped
    types = Counter(
        json.loads(line.split("payload: ")[1])["type"] for line in dumped.splitlines() if '"type":"' in line
    )
    assert types["FEATURE_LEVEL_RECORD"] == len(image.features())
    assert types["TOPIC_RECORD"] == image.topic_count
    assert types["ACCESS_CONTROL_ENTRY_RECORD"] == len(image.acls()) > 0
    assert types["REGISTER_BROKER_RECORD"] == len(image.broker_ids()) > 0
    assert types["CLIENT_QUOTA_RECORD"] == sum(len(values) for _, values in image.quotas())


def test_a_node_of_apache_kafka_starts_on_a_snapshot(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    with running(data, CLUSTER_ID) as first:
        arguments = ("--bootstrap-server", first.bootstrap, "--create", "--topic")
        tool("topics", *arguments, "orders", "--partitions", "3", "--config", "retention.ms=12345")
        tool("topics", *arguments, "payments", "--partitions", "2")
    log = data / "__cluster_metadata-0"
    image = read_log(log)
    for old in [*log.glob("*.checkpoint"), *log.glob("*.log"), *log.glob("*index"), *log.glob("*.snapshot")]:
        old.unlink()
    (log / "leader-epoch-checkpoint").unlink()
    write(image, log, image.last_offset + 1, image.last_epoch)
    second = KafkaNode(data)
    second.settings["controller.quorum.voters"] = first.settings["controller.quorum.voters"]
    second.settings["listeners"] = first.settings["listeners"]
    second.settings["advertised.listeners"] = first.settings["advertised.listeners"]
    second.port = first.port
    with second:
        listed = tool("topics", "--bootstrap-server", second.bootstrap, "--describe").stdout
    assert "Topic: orders" in listed
    assert "retention.ms=12345" in listed
    assert "PartitionCount: 2" in listed
    # The records that Kafka appended after the snapshot match what klamm had read.
    after = load_snapshot(next(log.glob("*.checkpoint")), image.last_offset + 1, image.last_epoch)
    for segment in sorted(log.glob("*.log")):
        after = after.apply_batches(segment.read_bytes())
    assert after.topic_names() == image.topic_names()
    assert after.last_offset > image.last_offset
