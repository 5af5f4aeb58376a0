"""Kafka Streams with a state store, and distributed Connect, with replication factor 3 while processes are killed."""

from __future__ import annotations

import shutil
import struct
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest

from klamm.protocol.messages.group_messages import ListGroupsRequest, ListGroupsResponse
from tests.interop.applications.cluster import (
    PATIENCE_S,
    ROUNDS,
    bootstrap,
    create_topics,
    producer_of,
    while_brokers_die,
)
from tests.interop.applications.processes import ConnectWorker, WordCount
from tests.interop.group_peers import Peer
from tests.support.broker_processes import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STREAMS = {"group.protocol": "streams"}
CLASSIC = {"session.timeout.ms": "10000", "num.standby.replicas": "1"}
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
PROTOCOLS = {
    "classic": CLASSIC,
    "classic, exactly once": CLASSIC | EXACTLY_ONCE,
    "streams": STREAMS,
    "streams, exactly once": STREAMS | EXACTLY_ONCE,
}
"""Settings of the application; those of the streams protocol are the broker's."""
WORDS = [f"word-{number}" for number in range(20)]


class Load:
    """Produces words with an idempotent producer and acks=all until it is stopped."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: Counter[str] = Counter()
        self.failed: list[str] = []
        self._producer = producer_of(servers)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(0.005):
            word = WORDS[number % len(WORDS)]
            number += 1
            self._producer.produce("words", word.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(120)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged[(message.value() or b"").decode()] += 1
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        """Stop, and wait for the acknowledgements."""
        self._stopped.set()
        self._thread.join()


class Counts:
    """The counts of each word in the order of topic "counts"."""

    def __init__(self, servers: str) -> None:
        self.of: dict[str, list[int]] = {word: [] for word in WORDS}
        settings = {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe(["counts"])

    def read(self) -> None:
        """Read the records that are available."""
        for message in self._consumer.consume(10_000, timeout=1):
            if message.error() is None:
                (count,) = struct.unpack(">q", message.value() or b"")
                self.of[(message.key() or b"").decode()].append(count)

    def reached(self, expected: Counter[str]) -> bool:
        """Whether the last count of every word is at least the expected one."""
        self.read()
        return all(counts and counts[-1] >= expected[word] for word, counts in self.of.items())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def kinds_of_groups(brokers: list[BrokerProcess]) -> dict[str, str]:
    """The group types that the coordinator lists."""
    kinds: dict[str, str] = {}
    for node in brokers:
        peer = Peer(node.bootstrap)
        peer.send("", ListGroupsRequest(), 5)
        kinds |= {group.group_id: group.group_type for group in peer.receive("", ListGroupsResponse, 5).groups}
    return kinds


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_streams_application_counts_every_word(brokers: list[BrokerProcess], tmp_path: Path, protocol: str) -> None:
    servers = bootstrap(brokers)
    create_topics(servers, words=4, counts=4)
    instances = [WordCount(servers, tmp_path, f"streams-{number}", PROTOCOLS[protocol]) for number in (1, 2)]
    load = Load(servers)
    counts = Counts(servers)
    try:
        for instance in instances:
            instance.start()
        wait_until(lambda: all(one.is_running for one in instances), bound_s=PATIENCE_S)

        def between(number: int) -> None:
            expected = load.acknowledged.copy()
            wait_until(lambda: counts.reached(expected), bound_s=PATIENCE_S)
            if number == 1:
                # This instance also loses its store, which is then restored from the changelog.
                instances[0].kill()
                shutil.rmtree(instances[0].state)
                instances[0].start()

        while_brokers_die(brokers, between)
        assert kinds_of_groups(brokers)["word-count"] == protocol.partition(",")[0]
        load.stop()
        wait_until(lambda: counts.reached(load.acknowledged), bound_s=PATIENCE_S)
    finally:
        load.stop()
        for instance in instances:
            instance.kill()
        counts.close()
    assert not load.failed
    assert sum(load.acknowledged.values()) > 1000
    if "exactly once" in protocol:
        last = {word: found[-1] for word, found in counts.of.items()}
        assert last == load.acknowledged
    for word, found in counts.of.items():
        # At least once: after a kill a count may fall back to the committed one, but not below it.
        assert found[-1] >= load.acknowledged[word]
        assert sum(after < before for before, after in pairwise(found)) <= ROUNDS + 1, (word, found)


def test_connect_copies_every_line(brokers: list[BrokerProcess], tmp_path: Path) -> None:
    servers = bootstrap(brokers)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.touch()
    create_topics(servers, lines=1)
    workers = [ConnectWorker(servers, tmp_path, f"connect-{number}") for number in (1, 2)]
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(written, written + count))
        written += count

    def found() -> list[int]:
        return [int(line.split()[1]) for line in target.read_text().splitlines()] if target.exists() else []

    def has_all() -> bool:
        return set(found()) >= set(range(written))

    try:
        for worker in workers:
            worker.start()
        file_source = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": "lines",
        }
        file_sink = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "file": str(target),
            "topics": "lines",
        }
        workers[1].create("from-file", file_source)
        workers[1].create("to-file", file_sink)
        for connector in ("from-file", "to-file"):
            wait_until(lambda name=connector: workers[1].states(name) == ["RUNNING"], bound_s=PATIENCE_S)

        def between(number: int) -> None:
            write(500)
            wait_until(has_all, bound_s=PATIENCE_S)
            if number == 1:
                workers[0].kill()
                write(500)
                wait_until(has_all, bound_s=PATIENCE_S)
                workers[0].start()

        while_brokers_die(brokers, between)
        write(500)
        wait_until(has_all, bound_s=PATIENCE_S)
    finally:
        for worker in workers:
            worker.kill()
    first_seen = list(dict.fromkeys(found()))
    assert first_seen == list(range(written)), "each line, in order, at least once"
