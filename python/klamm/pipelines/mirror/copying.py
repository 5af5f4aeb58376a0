"""Handles the micro-batches of a mirror, and maintains its offset syncs."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.client import KafkaClient
from klamm.pipelines.mirror import sync_topic
from klamm.pipelines.mirror.clusters import Clusters, target_client, target_keys
from klamm.pipelines.mirror.options import MirrorError, MirrorOptions
from klamm.pipelines.mirror.sink import MirrorSink, SinkSettings, answers_of
from klamm.pipelines.mirror.sync_topic import PartitionSyncs, Place
from klamm.pipelines.mirror.syncs import Sync, Written, extended, syncs_of, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Copying:
    """Handles micro-batches one by one in a thread of Spark; other threads may read its offset syncs."""

    def __init__(self, options: MirrorOptions) -> None:
        """Raises ClientError, MirrorError."""
        self._options = options
        self._clusters = Clusters(options)
        self._client: KafkaClient = target_client(options)
        self._lock = threading.Lock()
        self._known: dict[Place, PartitionSyncs] = {}
        self._done: dict[Place, int] = {}
        self.records = 0
        self.failure: Exception | None = None
        """The exception of a failed batch: Spark only has its text."""

    def prepare(self) -> None:
        """Create the topics, and load what an earlier run knew. Raises ClientError, MirrorError."""
        self._clusters.look_after_topics()
        if self._clusters.mirrored:
            self._known = sync_topic.load(self._client, self._clusters.sync_topic)
        self.forget_what_is_gone(self._clusters)
        self._done = {place: one.syncs[-1].source for place, one in self._known.items() if one.syncs}

    def take(self, frame: DataFrame, _number: int) -> None:
        """Write a micro-batch, and store new offset syncs before Spark commits the batch."""
        try:
            # The batch's offsets are already fixed: every topic with records in it exists by now.
            self._clusters.patiently(self._clusters.look_after_topics)
            self._learn(self._write(frame))
        except Exception as error:  # Spark wraps it in an error of Java; the run raises the original
            self.failure = error
            raise

    def _write(self, frame: DataFrame) -> list[Written]:
        with tempfile.TemporaryDirectory(prefix="klamm-mirror-") as folder:
            answers = Path(folder) / "answers"
            left_out = tuple(sorted(self._clusters.left_out))
            settings = SinkSettings(target_keys(self._options), self._options.naming, left_out, str(answers))
            frame.write.format(MirrorSink.name()).mode("append").options(**settings.as_options()).save()
            return answers_of(answers.read_text())

    def translate(self, topic: str, partition: int, offset: int) -> tuple[str, int] | None:
        """The target offset for a group at `offset` of a source partition."""
        place = self._place(topic, partition)
        with self._lock:
            known = self._known.get(place)
        if known is None or not known.syncs or not self._options.topics.takes(topic):
            return None
        found = translate(known.syncs, offset)
        return None if found is None else (place.target, found)

    def position(self, topic: str, partition: int) -> int:
        """The source offset below which everything is known to be written."""
        with self._lock:
            return self._done.get(self._place(topic, partition), 0)

    def learn_ends(self, clusters: Clusters) -> None:
        """Store the ends of both sides for partitions without syncs, including empty ones.

        If the source's end is fetched first, later records of the source are written beyond the target's end.
        """
        names = self._options.naming
        wanted = [
            Place(topic.name, one.index, names.target(topic.name))
            for topic in clusters.mirrored.values()
            for one in topic.partitions
        ]
        with self._lock:
            wanted = [place for place in wanted if place not in self._known or not self._known[place].syncs]
        if not wanted:
            return
        targets = clusters.target_ends([place.target_partition for place in wanted])
        sources = clusters.ends()
        ids = {topic.name: topic.topic_id for topic in clusters.copies.values()}
        learned = {
            place: PartitionSyncs(
                ids[place.target], (Sync(sources[place.source_partition], targets[place.target_partition]),)
            )
            for place in wanted
        }
        with self._lock:
            self._known = learned | {place: one for place, one in self._known.items() if one.syncs}

    def forget_what_is_gone(self, clusters: Clusters) -> None:
        """Discard the syncs of a topic that was recreated on the target."""
        ids = {topic.name: topic.topic_id for topic in clusters.copies.values()}
        with self._lock:
            self._known = {
                place: one for place, one in self._known.items() if one.topic_id == ids.get(place.target, one.topic_id)
            }

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._clusters.close()

    def _place(self, topic: str, partition: int) -> Place:
        return Place(topic, partition, self._options.naming.target(topic))

    def _learn(self, batch: Sequence[Written]) -> None:
        places = [self._place(written.topic, written.partition) for written in batch]
        if len(set(places)) < len(places):
            raise MirrorError("a partition was written by two tasks at once: its order is lost")
        learned: dict[Place, PartitionSyncs] = {}
        for place, written in zip(places, batch, strict=True):
            topic_id = self._clusters.copies[place.topic].topic_id
            with self._lock:
                before = self._known.get(place)
            syncs = before.syncs if before is not None and before.topic_id == topic_id else ()
            learned[place] = PartitionSyncs(topic_id, extended(syncs, syncs_of(written)))
        sync_topic.save(self._client, self._clusters.sync_topic, learned)
        with self._lock:
            self._known |= learned
            self._done |= {place: one.syncs[-1].source for place, one in learned.items()}
        self.records += sum(written.rows for written in batch)
