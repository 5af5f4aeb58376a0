"""The driver's requests to the cluster: which partitions exist, and where they start and end."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from klamm._engine.client import KafkaClient
from klamm._engine.config import ConfigError
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.limits import AtOffsets, AtSpecialOffset, AtTimestamp, AtTimestamps, Limit
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import Assign, SourceOptions, Subscribe, SubscribePattern
from klamm.spark.ranges.offsets import EARLIEST, LATEST, Offsets, describe

DRIVER_REFUSED_MS: Final = 5000
"""How long the driver retries bootstrap servers that refuse connections when a query starts."""
TASK_REFUSED_MS: Final = 2000
"""The same for a task. It is shorter because Spark runs a failed task four times by default."""


def connect(client: Mapping[str, str]) -> KafkaClient:
    """A client of the cluster with these keys; it sends nothing yet."""
    keys = dict(client)
    bootstrap = keys.pop("bootstrap.servers")
    try:
        return KafkaClient(bootstrap, keys)
    except ConfigError as error:
        raise OptionError(f"option kafka.{error}") from None


def first_contact(client: Mapping[str, str], refused_ms: int) -> dict[str, str]:
    """These keys, with a limit for retries of refused connections.

    Only for the first contact of a query: later, tasks wait for a broker that restarts.
    """
    return {"klamm.bootstrap.refused.timeout.ms": str(refused_ms), **client}


def check_reachable(client: Mapping[str, str], refused_ms: int) -> None:
    """Raise ClientError if connections are refused for `refused_ms`, or for `max.block.ms` if that is shorter."""
    if int(client.get("max.block.ms", 60_000)) > refused_ms:
        with connect(first_contact(client, refused_ms)) as found:
            found.topics()


class ClusterView:
    """The partitions that a query reads; each call requests them again."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = connect(first_contact(options.client, DRIVER_REFUSED_MS))
        self.topic_ids: dict[str, str] = {}
        """From the latest request for partitions; empty if brokers have no topic ids (before Apache Kafka 2.8)."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def partitions(self) -> set[TopicPartition]:
        """The partitions of the subscription. Named topics must exist; a pattern may match none."""
        match self._options.subscription:
            case Assign(wanted):
                there = self._partitions_of({partition.topic for partition in wanted})
                if missing := wanted - there:
                    raise OptionError(f"option 'assign' names {describe(missing)}, which the cluster does not have")
                return set(wanted)
            case Subscribe(topics):
                return self._partitions_of(topics)
            case SubscribePattern(pattern):
                return self._partitions_of([name for name in self._client.topics() if pattern.fullmatch(name)])

    def _partitions_of(self, topics: Collection[str]) -> set[TopicPartition]:
        found = {TopicPartition(topic, number) for topic in topics for number in self._client.partitions(topic)}
        ids = {topic: self._client.topic_id(topic) for topic in topics}
        self.topic_ids |= {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each partition's log."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """The end of each partition of the subscription; with read_committed its last stable offset.

        An end below the known one may come from a replica that has just become leader: it is requested again, as often
        and at such intervals as `fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` say.
        """
        known = known or {}
        for attempt in range(self._options.retries):
            if attempt:
                time.sleep(self._options.retry_interval_ms / 1000)
            found = self._offsets(dict.fromkeys(self.partitions(), LATEST))
            if all(offset >= known.get(partition, 0) for partition, offset in found.items()):
                break
        return found

    def at(self, option: str, limit: Limit, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset for `limit`, set by `option`, in each partition; EARLIEST and LATEST may be resolved later."""
        match limit:
            case AtSpecialOffset(offset):
                return dict.fromkeys(partitions, offset)
            case AtOffsets(offsets):
                _check_names_all(option, offsets, partitions)
                return dict(offsets)
            case AtTimestamp(timestamp_ms, strict):
                return self._by_timestamp(option, dict.fromkeys(partitions, timestamp_ms), strict)
            case AtTimestamps(timestamps_ms, strict):
                _check_names_all(option, timestamps_ms, partitions)
                return self._by_timestamp(option, timestamps_ms, strict)

    def from_timestamp(self, timestamp_ms: int, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset with a timestamp at or after `timestamp_ms`, for each partition that has one."""
        return self._offsets(dict.fromkeys(partitions, timestamp_ms))

    def _by_timestamp(self, option: str, wanted: Offsets, strict: bool) -> Offsets:
        found = self._offsets(wanted)
        without = wanted.keys() - found.keys()
        if without and strict:
            first = min(without)
            raise OptionError(
                f"option '{option}': partition {first} has no record at or after {wanted[first]} ms; choose an earlier "
                "time, or set startingOffsetsByTimestampStrategy=latest to begin with new records"
            )
        return found | dict.fromkeys(without, LATEST)

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """For each partition EARLIEST, LATEST or a timestamp in ms; partitions without such a record are omitted."""
        by_topic: dict[str, dict[int, int]] = {}
        for partition, mark in wanted.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = mark
        return {
            TopicPartition(topic, number): offset
            for topic, marks in by_topic.items()
            for number, offset in self._client.offsets(topic, marks).items()
            if offset >= 0
        }


def _check_names_all(option: str, given: Offsets, partitions: Collection[TopicPartition]) -> None:
    if unknown := given.keys() - set(partitions):
        raise OptionError(f"option '{option}' names {describe(unknown)}, which is not among what is read")
    if missing := set(partitions) - given.keys():
        raise OptionError(
            f"option '{option}' must name every partition: {describe(missing)} is missing (-2 is its earliest offset)"
        )
