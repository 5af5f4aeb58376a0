"""Both clusters of a mirror: compares the source's topics with their copies, and updates the copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from klamm.admin import groups, topics
from klamm.admin.client import LEADER_MOVED, Client
from klamm.admin.topics import Topic
from klamm.client import BrokerError, KafkaClient, UnreachableError
from klamm.pipelines.mirror import sync_topic
from klamm.pipelines.mirror.options import MirrorError, MirrorOptions
from klamm.pipelines.mirror.sync_topic import PartitionSyncs, Place
from klamm.pipelines.mirror.topics import align_configs, make, plan
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.client_options import client_options, producer_options

T = TypeVar("T")

READ_COMMITTED: Final = {"isolation.level": "read_committed"}
"""Records of aborted transactions are not copied, because the copy has no transactions."""
EARLIEST: Final = -2
LATEST: Final = -1
PATIENCE_S: Final = 60
"""The default of Kafka's clients (`default.api.timeout.ms`)."""
PAUSE_S: Final = 0.5


class Clusters:
    """Connections to both clusters; for one thread."""

    def __init__(self, options: MirrorOptions) -> None:
        """Raises ClientError; MirrorError if both are the same cluster."""
        self._options = options
        self.source = _connected("source", options.source, client_options(source_keys(options)))
        try:
            self.target = _connected("target", options.target, target_keys(options))
        except BaseException:  # also Ctrl-C: the caller has nothing to close
            self.source.close()
            raise
        self.source_id = _cluster_id(self.source, options.source)
        self.target_id = _cluster_id(self.target, options.target)
        if self.source_id == self.target_id:
            self.close()
            raise MirrorError(
                f"source {options.source} and target {options.target} are one cluster, {self.source_id}: "
                "it would copy its own copies for ever"
            )
        self.copies: dict[str, Topic] = {}
        """The target's topics by the names of the source's, at the latest refresh."""
        self.mirrored: dict[str, Topic] = {}
        """The source's topics that are mirrored, at the latest refresh."""
        self.left_out: frozenset[str] = frozenset()
        self._looked_at_end = -1
        self._announced: set[str] = set()

    @property
    def sync_topic(self) -> str:
        """On the target."""
        return sync_topic.name_of(self.source_id)

    def look_after_topics(self) -> None:
        """Create missing topics and partitions on the target. Raises ClientError, MirrorError."""
        options = self._options
        there = {topic.name: topic for topic in topics.topics(self.source)}
        if missing := sorted(set(options.topics.names) - there.keys()):
            raise MirrorError(f"the source {options.source} has no topic {', '.join(missing)}")
        # After the list of topics: a topic that is not in the list is not a mirror of the target yet.
        self.left_out = self._mirrors_of_target(there)
        taken = {name: topic for name, topic in there.items() if not topic.is_internal and options.topics.takes(name)}
        if looped := sorted(self.left_out & set(options.topics.names)):
            raise MirrorError(
                f"topic {looped[0]} of the source {options.source} is itself a mirror of the target: it would be "
                f"copied forever. If that mirror has ended, delete the source's topic {self._sync_topic_of_target}"
            )
        self.mirrored = {name: topic for name, topic in taken.items() if name not in self.left_out}
        names = self._names()
        target = {topic.name: topic for topic in topics.topics(self.target)}
        self._announce(names)
        changes = plan(list(self.mirrored.values()), names, target)
        if changes.created or changes.grown:
            make(self.source, self.target, changes, options.excluded_configs, options.replication_factor)
            target = {topic.name: topic for topic in topics.topics(self.target, sorted(names.values()))}
        self.copies = {topic: target[name] for topic, name in names.items()}

    def patiently(self, action: Callable[[], T]) -> T:
        """The result of `action`, which uses the clusters; retried for a while if a broker is unreachable."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return action()
            except (UnreachableError, BrokerError) as error:
                passes = isinstance(error, UnreachableError) or error.error_code in LEADER_MOVED
                if not passes or time.monotonic() > deadline:
                    raise
                self.start_again()
                time.sleep(PAUSE_S)

    def start_again(self) -> None:
        """Close connections, because one may be broken."""
        self.source.start_again()
        self.target.start_again()

    def look_after_configs(self) -> None:
        """Give the copies the configs of the source's topics. Raises ClientError."""
        align_configs(self.source, self.target, self._names(), self._options.excluded_configs)

    def ends(self) -> dict[TopicPartition, int]:
        """The end offsets of the mirrored partitions of the source."""
        return self._offsets(LATEST)

    def begins(self) -> dict[TopicPartition, int]:
        """Their first offsets."""
        return self._offsets(EARLIEST)

    def target_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of partitions of the target."""
        return groups.list_offsets(self.target, dict.fromkeys(places, LATEST))

    def _offsets(self, mark: int) -> dict[TopicPartition, int]:
        places = [TopicPartition(topic.name, one.index) for topic in self.mirrored.values() for one in topic.partitions]
        return groups.list_offsets(self.source, dict.fromkeys(places, mark))

    def _names(self) -> dict[str, str]:
        return self._options.naming.targets(self.mirrored.keys())

    @property
    def _sync_topic_of_target(self) -> str:
        return sync_topic.name_of(self.target_id)

    def _mirrors_of_target(self, there: Mapping[str, Topic]) -> frozenset[str]:
        """The source's topics that are mirrored from the target; updated when necessary."""
        name = self._sync_topic_of_target
        if name not in there:
            return frozenset()
        place = TopicPartition(name, 0)
        end = groups.list_offsets(self.source, {place: LATEST})[place]
        if end == self._looked_at_end:
            return self.left_out
        with source_client(self._options) as client:
            found = frozenset(place.target for place in sync_topic.load(client, name))
        self._looked_at_end = end
        return found

    def _announce(self, names: Mapping[str, str]) -> None:
        """Mark copies before they contain records, so that a mirror in the other direction leaves them out."""
        new = names.keys() - self._announced
        if not new:
            return
        topics.create(
            self.target,
            [self.sync_topic],
            partitions=1,
            replication_factor=self._options.replication_factor,
            configs=sync_topic.CONFIGS,
            if_not_exists=True,
        )
        with target_client(self._options) as client:
            places = {Place(name, sync_topic.ANNOUNCED, names[name]): PartitionSyncs(None, ()) for name in new}
            sync_topic.save(client, self.sync_topic, places)
        self._announced |= new

    def close(self) -> None:
        """Close the connections."""
        self.source.close()
        self.target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def source_keys(options: MirrorOptions) -> dict[str, str]:
    """Keys of the consuming client."""
    return READ_COMMITTED | {**options.source_config, "bootstrap.servers": options.source}


def target_keys(options: MirrorOptions) -> dict[str, str]:
    """Keys of the producing client."""
    return producer_options({**options.target_config, "bootstrap.servers": options.target})


def source_client(options: MirrorOptions) -> KafkaClient:
    """A client of the source."""
    keys = client_options(source_keys(options))
    return KafkaClient(keys.pop("bootstrap.servers"), keys)


def target_client(options: MirrorOptions) -> KafkaClient:
    """A client of the target."""
    keys = target_keys(options)
    return KafkaClient(keys.pop("bootstrap.servers"), keys)


def _cluster_id(client: Client, bootstrap: str) -> str:
    found = client.metadata().cluster_id
    if found is None:
        raise MirrorError(f"{bootstrap} does not report the id of its cluster, by which copies are recognized")
    return found


def _connected(which: str, bootstrap: str, config: Mapping[str, str]) -> Client:
    try:
        return Client(bootstrap, config=config)
    except UnreachableError as error:
        raise MirrorError(f"the {which}, {bootstrap}: {error}") from None
