"""Writes the metadata log of a random cluster, and records what happened in it at the same time.

Brokers restart and crash, leaders move and are elected uncleanly, followers lag, partitions are reassigned, topics are
created, configured and deleted, controllers change, snapshots are written. `Truth` is kept a record at a time from the
states in between, so that what a reader finds in the log can be compared with it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from klamm._engine.metadata import Image
from klamm._engine.quorum import write_snapshot
from klamm.protocol.generated import metadata_records as mr
from klamm.protocol.generated.metadata_records import MetadataRecord
from tests.support.metadata_stories import BROKER, LEVEL, TOPIC, WrittenLog, change, config, partition, registration

BEGIN_MS = 1_790_000_000_000
BATCH = 500
DOWN_MAX = 3
KEYS = ("retention.ms", "segment.bytes", "max.message.bytes")


class Partition:
    """The state of a partition."""

    def __init__(self, topic: Topic, number: int, replicas: list[int], leader: int) -> None:
        self.topic, self.number, self.leader = topic, number, leader
        self.replicas, self.isr = replicas, list(replicas)
        self.adding: list[int] = []
        self.is_recovering = False

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and number."""
        return self.topic.id, self.number

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a reassignment is adding do not count."""
        return len(self.isr) < len(set(self.replicas) - set(self.adding))


class Topic(NamedTuple):
    """A topic and its partitions."""

    name: str
    id: bytes
    partitions: list[Partition]
    configs: dict[str, str]


class Interval(NamedTuple):
    """Times in ms; None: still open at the end."""

    key: object
    from_ms: int
    to_ms: int | None


class Truth:
    """What happened."""

    def __init__(self) -> None:
        self.moves: Counter[str] = Counter()
        self.unclean: list[tuple[bytes, int, int]] = []
        """Topic id, partition, time."""
        self.isr_changes: Counter[tuple[int, str]] = Counter()
        """By broker, and left, entered or removed."""
        self.under_replicated: list[Interval] = []
        self.leaderless: list[Interval] = []
        self.fenced: list[Interval] = []
        self.configs: Counter[str] = Counter()
        self.elections: list[tuple[int, int, int | None]] = []
        """Epoch, leader, length in ms."""
        self._open: dict[tuple[str, object], int] = {}

    def note(self, name: str, key: object, time_ms: int, *, is_so: bool) -> None:
        """Begin or end an interval of `under_replicated`, `leaderless` or `fenced`, if the state has changed."""
        begun = self._open.get((name, key))
        if is_so and begun is None:
            self._open[name, key] = time_ms
        elif not is_so and begun is not None:
            del self._open[name, key]
            getattr(self, name).append(Interval(key, begun, time_ms))

    def end(self) -> None:
        """Close the open intervals as unended."""
        for (name, key), begun in self._open.items():
            getattr(self, name).append(Interval(key, begun, None))
        self._open.clear()


class Life:
    """Writes the log; `live` continues it to a number of records."""

    def __init__(
        self, directory: Path, seed: int, *, brokers: int = 12, topics: int = 40, segment_bytes: int = 64 << 20
    ) -> None:
        """Start with that many `topics`, with 2 or 3 replicas and 1 to 12 partitions each."""
        self.truth = Truth()
        self._log = WrittenLog(directory, segment_bytes=segment_bytes, is_volatile=True)
        self._rng = random.Random(seed)
        self._now_ms = self._last_ms = BEGIN_MS
        self._brokers = list(range(1, brokers + 1))
        self._epochs: dict[int, int] = {}
        self._down: list[int] = []
        self._topics: list[Topic] = []
        self._topic_count = 0
        self._quorum_leader = 0
        self._has_password = False
        self._image, self._in_image = Image(), 0
        self._elect()
        self._put([mr.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)])
        for broker in self._brokers:
            self._come(broker)
        for _ in range(topics):
            self._create()

    @property
    def end_offset(self) -> int:
        """The number of records."""
        return self._log.native.end_offset

    def live(self, records: int, *, snapshots: int = 0, on_progress: Callable[[int], None] = lambda _: None) -> Truth:
        """Continue until there are `records`, writing that many snapshots on the way; returns all that has happened."""
        events = {
            self._lag: 30,
            self._restart: 4,
            self._crash: 5,
            self._recover: 6,
            self._configure: 12,
            self._reassign: 6,
            self._create: 4,
            self._delete: 2,
            self._elect: 2,
            self._idle: 10,
        }
        begun, taken = self.end_offset, 0
        while self.end_offset < records:
            [event] = self._rng.choices(list(events), list(events.values()))
            event()
            if taken < snapshots and self.end_offset - begun >= (taken + 1) * (records - begun) / (snapshots + 1):
                taken += 1
                self._snapshot()
            on_progress(self.end_offset)
        self._idle()
        self.truth.end()
        return self.truth

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    # Writing

    def _put(self, records: Iterable[MetadataRecord]) -> None:
        """Write the records a little later than the previous ones; a lazy iterable is evaluated at that later time."""
        self._advance()
        self._write(list(records))

    def _put_change(self, one: Partition, **changed: object) -> None:
        self._advance()
        self._write([self._change(one, **changed)])

    def _advance(self) -> None:
        self._now_ms += self._rng.randint(1, 400)

    def _write(self, records: Sequence[MetadataRecord]) -> None:
        """Write the records with the current time, in batches."""
        for at in range(0, len(records), BATCH):
            self._log.put(self._now_ms, *records[at : at + BATCH])
        if records:
            self._last_ms = self._now_ms

    def _pause(self) -> None:
        self._now_ms += self._rng.randint(500, 60_000)

    def _change(self, one: Partition, **changed: object) -> mr.PartitionChangeRecord:
        """Update the partition's state, and return the record of the change at the current time."""
        before = Partition(one.topic, one.number, one.replicas, one.leader)
        before.isr = one.isr
        one.replicas = changed.get("replicas", one.replicas)  # type: ignore[assignment]
        one.isr = changed.get("isr", one.isr)  # type: ignore[assignment]
        one.leader = changed.get("leader", one.leader)  # type: ignore[assignment]
        one.adding = changed.get("adding_replicas", one.adding)  # type: ignore[assignment]
        one.is_recovering = bool(changed.get("leader_recovery_state", one.is_recovering))
        self._note_move(before, one)
        for broker in set(before.isr) - set(one.isr):
            self.truth.isr_changes[broker, "left" if broker in one.replicas else "removed"] += 1
        for broker in set(one.isr) - set(before.isr):
            self.truth.isr_changes[broker, "entered"] += 1
        self.truth.note("under_replicated", one.key, self._now_ms, is_so=one.is_under_replicated)
        self.truth.note("leaderless", one.key, self._now_ms, is_so=one.leader < 0)
        return change(*one.key, **changed)

    def _note_move(self, before: Partition, after: Partition) -> None:
        if before.leader != after.leader:
            kind = "lost" if after.leader < 0 else "regained" if before.leader < 0 else "moved"
            self.truth.moves[kind] += 1

    # Brokers

    def _come(self, broker: int) -> None:
        """A broker registers and is unfenced."""
        self._advance()
        epoch = self._epochs[broker] = self.end_offset
        self._write(
            [
                mr.RegisterBrokerRecord(
                    broker_id=broker,
                    incarnation_id=self._rng.randbytes(16),
                    broker_epoch=epoch,
                    end_points=(),
                    features=(),
                    rack=f"zone-{broker % 3}",
                )
            ]
        )
        if broker in self._down:  # its registration begins another interval
            self.truth.note("fenced", broker, self._now_ms, is_so=False)
        self.truth.note("fenced", broker, self._now_ms, is_so=True)
        self._put([registration(broker, fenced=-1, broker_epoch=epoch)])
        self.truth.note("fenced", broker, self._now_ms, is_so=False)

    def _restart(self) -> None:
        """A controlled shutdown, a pause, and a restart."""
        if len(self._down) < DOWN_MAX:
            broker = self._any_up()
            self._put([registration(broker, in_controlled_shutdown=1, broker_epoch=self._epochs[broker])])
            self._leave(broker)
            self._pause()
            self._return(broker)

    def _crash(self) -> None:
        """A broker crashes, and may stay down for long."""
        if len(self._down) < DOWN_MAX:
            self._leave(self._any_up())

    def _recover(self) -> None:
        """A crashed broker restarts, sometimes after its partitions have elected another leader uncleanly."""
        if not self._down:
            return
        if self._rng.random() < 0.5:
            self._elect_uncleanly()
        self._pause()
        self._return(self._rng.choice(self._down))

    def _leave(self, broker: int) -> None:
        self._advance()
        self._down.append(broker)
        changes = [self._without(one, broker) for one in self._partitions_of(broker) if broker in one.isr]
        self._write([*changes, registration(broker, fenced=1, broker_epoch=self._epochs[broker])])
        self.truth.note("fenced", broker, self._now_ms, is_so=True)

    def _without(self, one: Partition, broker: int) -> mr.PartitionChangeRecord:
        """The last member stays in the ISR, and stops being the leader."""
        isr = [member for member in one.isr if member != broker]
        if not isr:
            return self._change(one, leader=-1)
        if one.leader != broker:
            return self._change(one, isr=isr)
        return self._change(one, isr=isr, leader=next(member for member in one.replicas if member in isr))

    def _return(self, broker: int) -> None:
        self._come(broker)
        self._down.remove(broker)
        waiting = [one for one in self._partitions_of(broker) if one.leader < 0 and broker in one.isr]
        self._put(self._change(one, leader=broker) for one in waiting)
        following = [one for one in self._partitions_of(broker) if one.leader >= 0 and broker not in one.isr]
        self._put(self._change(one, isr=[*one.isr, broker]) for one in following)
        led = (one for one in self._partitions_of(broker) if one.replicas[0] == broker)
        self._put(self._change(one, leader=broker) for one in led if one.leader != broker and broker in one.isr)

    def _elect_uncleanly(self) -> None:
        """Live replicas become the leaders of leaderless partitions, and finish their recovery later."""
        self._advance()
        elected, records = [], []
        for one in self._partitions():
            up = [replica for replica in one.replicas if replica not in self._down]
            if one.leader < 0 and up:
                records.append(self._change(one, isr=up[:1], leader=up[0], leader_recovery_state=1))
                self.truth.unclean.append((*one.key, self._now_ms))
                elected.append(one)
        self._write(records)
        self._put(self._change(one, leader_recovery_state=0) for one in elected)

    # Partitions

    def _lag(self) -> None:
        """A follower leaves the ISR and returns."""
        one = self._rng.choice(self._rng.choice(self._topics).partitions)
        followers = [replica for replica in one.isr if replica != one.leader]
        if one.leader >= 0 and followers:
            slow = self._rng.choice(followers)
            self._put_change(one, isr=[replica for replica in one.isr if replica != slow])
            self._put_change(one, isr=[*one.isr, slow])

    def _reassign(self) -> None:
        """A replica moves to another broker; the record that completes this elects another leader if necessary."""
        one = self._rng.choice(self._rng.choice(self._topics).partitions)
        others = [broker for broker in self._brokers if broker not in (*one.replicas, *self._down)]
        if one.leader < 0 or not others or set(one.isr) != set(one.replicas):
            return
        old, new = self._rng.choice(one.replicas), self._rng.choice(others)
        begun = {"replicas": [*one.replicas, new], "adding_replicas": [new], "removing_replicas": [old]}
        self._put_change(one, **begun)
        replicas = [new if replica == old else replica for replica in one.replicas if replica != new]
        done: dict[str, object] = {"replicas": replicas, "adding_replicas": [], "removing_replicas": []}
        done["isr"] = replicas
        if one.leader == old:
            done["leader"] = replicas[0]
        self._put_change(one, **done)

    # Topics

    def _create(self) -> None:
        self._topic_count += 1
        topic = Topic(f"topic-{self._topic_count}", self._topic_count.to_bytes(16, "big"), [], {})
        up = [broker for broker in self._brokers if broker not in self._down]
        replication = self._rng.choice((2, 3, 3))
        for number in range(self._rng.randint(1, 12)):
            replicas = self._rng.sample(up, replication)
            topic.partitions.append(Partition(topic, number, replicas, replicas[0]))
        self._topics.append(topic)
        created = [partition(topic.id, one.number, one.replicas, one.isr, one.leader) for one in topic.partitions]
        self._put([mr.TopicRecord(name=topic.name, topic_id=topic.id), *created])

    def _delete(self) -> None:
        if len(self._topics) > 10:
            topic = self._topics.pop(self._rng.randrange(len(self._topics)))
            self._put([mr.RemoveTopicRecord(topic_id=topic.id)])
            for one in topic.partitions:
                for name in ("under_replicated", "leaderless"):
                    self.truth.note(name, one.key, self._now_ms, is_so=False)
            self.truth.configs["deleted"] += len(topic.configs)

    def _configure(self) -> None:
        """Set or remove a topic's config; sometimes also set a password of the brokers."""
        topic, key, value = self._rng.choice(self._topics), self._rng.choice(KEYS), str(self._rng.randint(1, 3))
        known = topic.configs.get(key)
        if known is not None and self._rng.random() < 0.3:
            del topic.configs[key]
            self._put([config(key, None, of=topic.name, kind=TOPIC)])
            self.truth.configs["removed"] += 1
            return
        topic.configs[key] = value
        self._put([config(key, value, of=topic.name, kind=TOPIC)])
        self.truth.configs["set" if known is None else "repeated" if known == value else "changed"] += 1
        if self._rng.random() < 0.1:
            self._put([config("ssl.keystore.password", value, of="", kind=BROKER)])
            self.truth.configs["replaced" if self._has_password else "set"] += 1
            self._has_password = True

    # The quorum

    def _elect(self) -> None:
        """Another controller becomes the leader, after a pause without writes."""
        first = not self.truth.elections
        self._now_ms += 0 if first else self._rng.randint(50, 4000)
        self._quorum_leader = self._quorum_leader % 3 + 1
        epoch = self._log.epoch + self._rng.randint(1, 2)
        self._log.lead(self._now_ms, epoch, self._quorum_leader)
        self.truth.elections.append((epoch, self._quorum_leader, None if first else self._now_ms - self._last_ms))
        self._last_ms = self._now_ms

    def _idle(self) -> None:
        for _ in range(self._rng.randint(1, 20)):
            self._now_ms += 500
            self._write([mr.NoOpRecord()])

    def _snapshot(self) -> None:
        native, end, epoch = self._log.native, self.end_offset, self._log.epoch
        self._image, self._in_image = native.replay(self._image, self._in_image, end), end
        path = native.snapshot_path(end, epoch)
        write_snapshot(
            path, self._image, epoch=epoch, last_contained_log_timestamp_ms=self._last_ms, now_ms=self._now_ms
        )
        native.snapshot_finished(end, epoch)

    # Brokers and partitions

    def _any_up(self) -> int:
        return self._rng.choice([broker for broker in self._brokers if broker not in self._down])

    def _partitions(self) -> Iterator[Partition]:
        return (one for topic in self._topics for one in topic.partitions)

    def _partitions_of(self, broker: int) -> list[Partition]:
        return [one for one in self._partitions() if broker in one.replicas]
