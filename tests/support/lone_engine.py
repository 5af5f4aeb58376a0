"""An engine that leads one partition, without a node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from klamm._engine.metadata import Image
from klamm._engine.node import Boot, Engine
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord, encode

TOPIC = b"t" * 16
"""The id of topic "t", whose partition 0 has a second replica that is out of sync."""
DIRECTORY = b"d" * 16


def image(isr: Sequence[int] = (1,)) -> Image:
    broker = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=b"i" * 16,
        broker_epoch=1,
        end_points=[],
        features=[],
        rack=None,
        fenced=False,
        log_dirs=[DIRECTORY],
    )
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=[1, 2],
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY, b"e" * 16],
    )
    records = [encode(broker, 3), encode(TopicRecord(name="t", topic_id=TOPIC), 0), encode(partition, 1)]
    return Image().apply(records)


@contextlib.contextmanager
def lone_engine(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Engine]:
    """The engine of node 1, with its files in `folder`."""
    (folder / "logs").mkdir(exist_ok=True)
    engine, _, _, _, _ = Boot(
        node_id=1,
        cluster_id="c",
        log_dirs=[(folder / "logs", DIRECTORY)],
        settings=settings or {},
        metadata_dir=folder / "metadata",
        segment_bytes=8 << 20,
        segment_ms=604_800_000,
        listeners=[],
        features=[],
        static_voters=[1],
    ).finish(lambda code, message: KafkaError(ErrorCode(code), message))
    engine.publish(image())
    try:
        yield engine
    finally:
        engine.shutdown(1)
