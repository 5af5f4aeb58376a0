"""Three nodes and copiers in processes that are killed, paused and cut off: the effects of transactions stay correct.

A life has a new cluster and a number of kills. `tests/support/transaction_history.py` defines what is correct.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.admin import features
from klamm.admin.client import Client
from klamm.admin.quorum import QuorumClient
from klamm.client import ClientError
from klamm.protocol.messages.feature_updates import UpgradeType
from tests.support import copier
from tests.support.broker_processes import ProxiedBroker, created
from tests.support.copier import CALL_S
from tests.support.finding import Finding
from tests.support.proxy import HOST
from tests.support.topic_reading import read_topic
from tests.support.transaction_clients import PARTITIONS, CopierProcess, Reader, Source
from tests.support.transaction_history import Copied, CopyHistory, Outcome
from tests.support.waiting import wait_until

NODES: Final = 3
COPIERS: Final = 4
GROUP: Final = "copiers"
TIMEOUTS_MS: Final = (4_000, 30_000)
"""The copiers' transaction timeouts, in turn.

After a pause, a copier with the short one has been fenced by the transaction coordinator; the others are fenced only by
the group.
"""
PROGRESS: Final = 40
"""How many copies must be made between two series of faults."""
FAULTS_BETWEEN: Final = 8
BOUND_S: Final = 240.0
CONFIG: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.segment.bytes": "1048576",
}


class Variant(NamedTuple):
    """The parameters of a life."""

    transaction_version: int
    protocol: str

    def __str__(self) -> str:
        return f"transaction.version {self.transaction_version}, group.protocol {self.protocol}"


VARIANTS: Final = (Variant(2, "classic"), Variant(1, "classic"), Variant(2, "consumer"), Variant(1, "consumer"))
CONSUMERS: Final[Mapping[str, Mapping[str, str | int]]] = {
    "classic": {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},  # the broker's timeouts apply
}


@dataclass
class Report:
    """Counts of a life."""

    kills: int = 0
    faults: int = 0
    copies: int = 0
    commits: int = 0
    aborts: int = 0
    stuck: int = 0
    """librdkafka calls that did not return, whose process was ended."""

    def __add__(self, other: Self) -> Report:
        mine, theirs = vars(self), vars(other)
        return Report(**{name: mine[name] + theirs[name] for name in mine})

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.faults} other faults, {self.commits} transactions committed and "
            f"{self.aborts} aborted by copiers, {self.copies} records copied, {self.stuck} calls of librdkafka stuck"
        )


class Life:
    """A cluster and its copiers, and the faults."""

    def __init__(self, folder: Path, variant: Variant, seed: int, progress: Callable[[Report], None]) -> None:
        self.variant, self.seed, self._rng, self._progress = variant, seed, random.Random(seed), progress
        self.history, self.report = CopyHistory(), Report()
        self.said: list[str] = []
        self.nodes = [ProxiedBroker(each) for each in created(folder, NODES, CONFIG)]
        self.servers = ",".join(f"{HOST}:{node.proxy.port}" for node in self.nodes)
        self.copiers = [CopierProcess(folder, self._settings(number, variant)) for number in range(COPIERS)]
        self._faults: dict[Callable[[], int], float] = {
            self._kill_copier: 4,
            self._kill_leader: 3,
            self._kill_coordinator_of_group: 3,
            self._kill_coordinator_of_transactions: 3,
            self._kill_several: 1,
            self._pause_copier: 2,
            self._pause_copier_in_transaction: 3,
            self._pause_broker: 1,
            self._cut_broker: 2,
        }

    def _settings(self, number: int, variant: Variant) -> copier.Settings:
        return copier.Settings(
            self.servers,
            f"copier-{number}",
            GROUP,
            transaction_timeout_ms=TIMEOUTS_MS[number % len(TIMEOUTS_MS)],
            consumer=CONSUMERS[variant.protocol],
        )

    # The faults. Each returns how many processes it killed.

    def _kill_copier(self) -> int:
        one = self._rng.choice(self.copiers)
        self._say(f"kill {one.name}")
        one.kill()
        one.start()
        return 1

    def _kill_leader(self) -> int:
        partition = self._rng.randrange(PARTITIONS)
        topic = self._rng.choice(("input", "output"))

        def find(client: Client) -> int:
            [found] = client.metadata((topic,)).topics
            return next(each.leader_id for each in found.partitions if each.partition_index == partition)

        return self._kill_broker(f"the leader of {topic}-{partition}", self._found(find))

    def _kill_coordinator_of_group(self) -> int:
        def find(client: Client) -> int:
            address = client.coordinator(GROUP).address
            return next(node.id for node in self.nodes if address == f"{HOST}:{node.proxy.port}")

        return self._kill_broker("the coordinator of the group", self._found(find))

    def _kill_coordinator_of_transactions(self) -> int:
        name = self._rng.choice(self.copiers).name
        found = self._found(lambda client: client.coordinator_of_transactions(name))
        return self._kill_broker(f"the coordinator of {name}", found)

    def _found(self, find: Callable[[Client], int]) -> int:
        """The node found, or a random one when it is unknown."""
        with contextlib.suppress(ClientError), Client(self.servers, timeout_s=5) as client:
            found = find(client)
            if found > 0:
                return found
        return self._rng.choice(self.nodes).id

    def _kill_broker(self, what: str, node_id: int) -> int:
        node = next(each for each in self.nodes if each.id == node_id)
        down_s = self._rng.choice((0, self._rng.uniform(0, 4)))  # sometimes longer than a session
        self._say(f"kill {what}, node {node_id}, for {down_s:.1f} s")
        node.kill()
        time.sleep(down_s)
        node.launch()
        return 1

    def _kill_several(self) -> int:
        nodes = self._rng.sample(self.nodes, self._rng.choice((2, 3)))
        self._say(f"kill nodes {[node.id for node in nodes]}")
        for node in nodes:
            node.kill()
        for node in nodes:
            node.launch()
        return len(nodes)

    def _pause_copier(self) -> int:
        one = self._rng.choice(self.copiers)
        seconds = TIMEOUTS_MS[0] / 1000 + self._rng.uniform(-1, 6)
        self._say(f"pause {one.name} for {seconds:.1f} s")
        one.pause(seconds)
        return 0

    def _pause_copier_in_transaction(self) -> int:
        """Other copiers take over its records long before it commits the offsets: only the group fences it."""
        one = self._rng.choice(self.copiers)
        seconds = TIMEOUTS_MS[0] / 1000 + self._rng.uniform(2, 8)
        self._say(f"pause {one.name} in its next transaction for {seconds:.1f} s")
        one.pause_in_transaction(seconds)
        return 0

    def _pause_broker(self) -> int:
        node, seconds = self._rng.choice(self.nodes), self._rng.uniform(0.2, 5)
        self._say(f"pause node {node.id} for {seconds:.1f} s")
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(node.pid, signal.SIGCONT)
        return 0

    def _cut_broker(self) -> int:
        """Clients and followers cannot connect to it. It can connect to the others, and the controllers to it."""
        node, seconds = self._rng.choice(self.nodes), self._rng.uniform(0.2, 5)
        self._say(f"cut off node {node.id} for {seconds:.1f} s")
        node.proxy.cut()
        time.sleep(seconds)
        node.proxy.heal()
        return 0

    def _say(self, what: str) -> None:
        self.said.append(f"{time.strftime('%H:%M:%S')} {what}")

    # The course of a life

    def play(self, kills: int) -> list[Finding]:
        """Play until that many processes were killed; returns the findings. Raises TimeoutError without progress."""
        for node in self.nodes:
            node.launch()
        self._create_topics()
        with self._clients() as source:
            self._until_progress()
            while self.report.kills < kills:
                for _ in range(FAULTS_BETWEEN):
                    self._fault()
                self._until_progress()
                self._check_offsets()
            source.stop()
            return self._findings()

    def _fault(self) -> None:
        [fault] = self._rng.choices(list(self._faults), list(self._faults.values()))
        killed = fault()
        self.report.kills += killed
        self.report.faults += killed == 0
        end = time.monotonic() + self._rng.choice((0, self._rng.uniform(0, 1.5)))
        while time.monotonic() < end:
            self._look_after()
            time.sleep(0.05)
        self._progress(self.report)

    def _look_after(self) -> None:
        for one in self.copiers:
            one.look_after()
        for node in self.nodes:
            assert node.is_running, f"node {node.id} ended by itself:\n{node.log()}"
        self.report.copies = len(self.history.seen)
        self.report.stuck = sum(len(one.stuck) for one in self.copiers)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> object:
            self._look_after()
            return condition()

        wait_until(holds, lambda: f"{what}\n{self.described()}", bound_s=BOUND_S)

    def _until_progress(self) -> None:
        count = len(self.history.seen)
        self._until(lambda: len(self.history.seen) >= count + PROGRESS, "records are copied")

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

        def are_created() -> bool:
            try:
                found = admin.list_topics(timeout=5)
                missing = {"input", "output"} - found.topics.keys()
                if len(found.brokers) == NODES and missing:
                    for future in admin.create_topics([NewTopic(name, PARTITIONS, NODES) for name in missing]).values():
                        future.result(CALL_S)
            except KafkaException:
                return False
            return not missing

        wait_until(are_created, self.described, bound_s=BOUND_S)
        wait_until(self._has_its_version, self.described, bound_s=BOUND_S)

    def _has_its_version(self) -> bool:
        """Set transaction.version, which succeeds once all controllers have registered; returns whether it is set."""
        name, level = "transaction.version", self.variant.transaction_version
        try:
            with QuorumClient(self.servers, is_controller=False) as client:
                if level < 2:
                    features.update(client, {name: level}, UpgradeType.SAFE_DOWNGRADE)
                return any((one.name, one.finalized) == (name, level) for one in features.describe(client))
        except ClientError:
            return False

    @contextlib.contextmanager
    def _clients(self) -> Iterator[Source]:
        source = Source(self.servers, self.history, self.seed)
        reader = Reader(self.servers, self.history.seen)
        try:
            for one in self.copiers:
                one.start()
            yield source
        finally:
            source.is_stopped.set()
            reader.stop()

    def _committed(self) -> dict[int, int]:
        """The group's committed offsets by partition, once no open transaction contains any."""
        settings = {"bootstrap.servers": self.servers, "group.id": GROUP, "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "log_level": 0})
        found: list[Any] = []

        def is_known() -> bool:
            with contextlib.suppress(KafkaException):
                found[:] = consumer.committed([TopicPartition("input", at) for at in range(PARTITIONS)], 10)
            return bool(found) and all(one.error is None for one in found)

        self._until(is_known, "the group's offsets are fetched")
        consumer.close()
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def _check_offsets(self) -> None:
        """The offsets of copies that a reader has seen are committed."""
        seen = len(self.history.seen)
        self.history.check_offsets(seen, self._committed())

    def _findings(self) -> list[Finding]:
        """At the end, all is copied, no transaction is open, and everything can be read."""
        written = read_topic(self.servers, "input", PARTITIONS, isolation="read_committed", bound_s=BOUND_S).records
        after = {partition: records[-1][0] + 1 for partition, records in written.items()}
        self._until(
            lambda: all(self._committed().get(partition, 0) >= end for partition, end in after.items()),
            "all is copied",
        )
        for one in self.copiers:
            one.stop()
            self.history.copiers |= copier.outcomes(one.journal)
        copies = self._without_open_transactions("output")
        source = self._without_open_transactions("input")
        self._until(self._replicas_are_equal, "all replicas are equal")
        self._count(copies)
        return self.history.findings(source, copies, self._committed())

    def _without_open_transactions(self, topic: str) -> dict[int, list[tuple[int, str]]]:
        """The records that read_committed returns, once no transaction is open."""
        end = time.monotonic() + BOUND_S
        while True:
            stable = read_topic(self.servers, topic, PARTITIONS, isolation="read_committed", bound_s=BOUND_S)
            if stable.ends == read_topic(self.servers, topic, PARTITIONS, bound_s=BOUND_S).ends:
                return stable.records
            assert time.monotonic() < end, f"a transaction in {topic} stays open\n{self.described()}"

    def _replicas_are_equal(self) -> bool:
        """Whether the nodes have the same bytes of each partition, since followers store their leader's batches."""
        partitions = [f"{topic}-{partition}" for topic in ("input", "output") for partition in range(PARTITIONS)]
        return all(len({log_of(node, partition) for node in self.nodes}) == 1 for partition in partitions)

    def _count(self, copies: Mapping[int, list[tuple[int, str]]]) -> None:
        visible = {Copied.decode(value).transaction for records in copies.values() for _, value in records}
        self.report.copies = sum(map(len, copies.values()))
        self.report.commits = len(visible)
        self.report.aborts = sum(outcome is Outcome.ABORTED for outcome in self.history.copiers.values())

    def described(self) -> str:
        """A description for a failure."""
        nodes = [f"node {node.id}:\n{node.log()[-2000:]}" for node in self.nodes]
        stuck = [where for one in self.copiers for where in one.stuck]
        return "\n".join([f"{self.variant}, seed {self.seed}: {self.report}", *self.said[-60:], *stuck, *nodes])

    def close(self) -> None:
        """Kill every process."""
        for one in self.copiers:
            one.kill()
        for node in self.nodes:
            node.kill()
            node.proxy.close()


def log_of(node: ProxiedBroker, partition: str) -> bytes:
    """The bytes of a partition. Its segments may have other base offsets than on another node."""
    return b"".join(each.read_bytes() for each in sorted((node.data / "data" / partition).glob("*.log")))


def live(
    folder: Path,
    variant: Variant,
    seed: int,
    kills: int,
    progress: Callable[[Report], None] = lambda _: None,
    *,
    seconds_max: float = math.inf,
) -> Report:
    """Run one life. Raises AssertionError with the findings. After a time limit, prints the state and exits."""
    life = Life(folder, variant, seed, progress)

    def give_up() -> None:
        print(f"not at its end after {seconds_max:.0f} s\n{life.described()}", file=sys.stderr)
        faulthandler.dump_traceback()
        life.close()
        os._exit(1)

    watchdog = threading.Timer(min(seconds_max, threading.TIMEOUT_MAX), give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        findings = life.play(kills)
        shown = [f"{len(findings)} anomalies", *map(str, findings[:20]), life.described()]
        assert not findings, "\n".join(shown)
        return life.report
    finally:
        watchdog.cancel()
        life.close()
