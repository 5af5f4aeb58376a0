"""Stores syncs on the target in a compacted topic with one partition, so that they are available with the target.

A record for each partition and its copy: the key is `["orders", 3, "eu.orders"]` (source topic, partition, target
topic), the value `{"topic_id": "...", "syncs": [[source, target, length], ...]}` with the id of the target's topic. Of
each copy there is one with partition -1 before anything is written to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from klamm._engine.client import KafkaClient
from klamm.pipelines.mirror.syncs import Sync
from klamm.protocol.topic_partition import TopicPartition

CONFIGS: Final = {"cleanup.policy": "compact"}
ANNOUNCED: Final = -1
"""The partition of a place that only says which topic is a copy of which."""
EARLIEST: Final = -2
LATEST: Final = -1


class Place(NamedTuple):
    """A partition and its copy, which has the same number."""

    topic: str
    partition: int
    target: str

    @property
    def source_partition(self) -> TopicPartition:
        """The partition that is mirrored."""
        return TopicPartition(self.topic, self.partition)

    @property
    def target_partition(self) -> TopicPartition:
        """Its copy."""
        return TopicPartition(self.target, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionSyncs:
    """The syncs of a partition, and the id of the target's topic that they are true of; None: it has none."""

    topic_id: str | None
    syncs: tuple[Sync, ...]


def name_of(source_cluster_id: str) -> str:
    """The topic on the target of mirrors from that cluster."""
    return f"klamm-mirror.{source_cluster_id}.internal"


def load(client: KafkaClient, topic: str) -> dict[Place, PartitionSyncs]:
    """All syncs in the topic. Records of another kind are ignored."""
    found: dict[Place, PartitionSyncs] = {}
    for key, value in _records(client, topic):
        try:
            place = Place(*json.loads(key or b""))
            fields = json.loads(value or b"")
            found[place] = PartitionSyncs(fields["topic_id"], tuple(Sync(*sync) for sync in fields["syncs"]))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def save(client: KafkaClient, topic: str, known: Mapping[Place, PartitionSyncs]) -> None:
    """Write new syncs; they are acknowledged when this returns."""
    if not known:
        return
    values = [json.dumps({"topic_id": one.topic_id, "syncs": one.syncs}).encode() for one in known.values()]
    keys = [json.dumps(place).encode() for place in known]
    client.produce(topic, 0, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    client.flush()


def _records(client: KafkaClient, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    end = client.offsets(topic, {0: LATEST})[0]
    at = client.offsets(topic, {0: EARLIEST})[0]
    while at < end:
        fetched = client.fetch(topic, 0, at, end, columns=["key", "value"])
        batch = pa.record_batch(fetched)
        yield from _pairs(batch.column("key").to_pylist(), batch.column("value").to_pylist())
        at = fetched.next_offset


def _pairs(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> Iterator[tuple[bytes | None, bytes | None]]:
    return zip(keys, values, strict=True)
