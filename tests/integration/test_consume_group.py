"""`klamm consume --group`: several processes join and leave a group, also together with another client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.cli.records.positions import parse_position
from klamm.cli.records.produce import Producer
from klamm.cli.records.reader import Reader
from klamm.client import UnreachableError
from klamm.protocol.topic_partition import TopicPartition
from tests.support.waiting import wait_until

Name = Callable[[str], str]
PARTITIONS = 4
BOUND_S = 60.0


class Member:
    """`klamm consume TOPIC --group GROUP --json` in its own process."""

    def __init__(self, bootstrap: str, folder: Path, topic: str, group: str, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.output = folder / f"{len(list(folder.iterdir()))}.out"
        command = [sys.executable, "-m", "klamm", "consume", topic, "--group", group, "--json", "-b", bootstrap]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options], stdout=output, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=os.environ
            )

    @property
    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines(keepends=True) if line[-1:] == "\n"]

    def end(self, number: int | None = None) -> None:
        """Wait for its end, or stop it; it must not have failed."""
        if number is not None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=BOUND_S)
        assert (self.process.returncode, said.strip()) == (0, b"")


@pytest.fixture
def started(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Starts members, and kills those that a failed test leaves running."""
    members: list[Member] = []

    def start(topic: str, group: str, *options: str) -> Member:
        members.append(Member(bootstrap, tmp_path / "out", topic, group, *options))
        return members[-1]

    yield start
    for one in members:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.wait()


def write(client: Client, topic: str, values: range) -> None:
    """Produce records to all partitions."""
    for partition in range(PARTITIONS):
        producer = Producer(client, topic, "none", partition)
        for value in values[partition::PARTITIONS]:
            producer.add((-1, None, str(value).encode(), []))
        producer.flush()


def values(*members: Member) -> list[int]:
    return sorted(int(record["value"]) for one in members for record in one.read)


def has_members(client: Client, group: str, count: int) -> Callable[[], bool]:
    def holds() -> bool:
        found = group_admin.describe(client, group)
        return (found.state, len(found.members)) == ("Stable" if count else "Empty", count)

    return holds


def test_members_share_partitions_and_take_over_those_of_leavers(
    bootstrap: str, name: Name, started: Callable[..., Member]
) -> None:
    topic, group = name("work"), name("team")
    with Client(bootstrap) as client:
        topic_admin.create(client, [topic], partitions=PARTITIONS)
        write(client, topic, range(40))
        first = started(topic, group, "--follow")
        wait_until(lambda: values(first) == list(range(40)), "the first member reads everything")
        second = started(topic, group, "--follow")
        wait_until(has_members(client, group, 2), "two members")
        write(client, topic, range(40, 80))
        wait_until(lambda: values(first, second) == list(range(80)), "both together read everything, once")
        assert {record["partition"] for record in second.read} in ({0, 1}, {2, 3})
        second.end(signal.SIGINT)
        wait_until(has_members(client, group, 1), "one member: the other has left, and was not waited for")
        write(client, topic, range(80, 120))
        wait_until(lambda: values(first, second) == list(range(120)), "the one that stays reads everything")
        first.end(signal.SIGTERM)
        wait_until(has_members(client, group, 0), "a group without members")
        assert {one.lag for one in group_admin.describe(client, group).positions} == {0}


def test_without_follow_it_ends_at_the_end_of_the_log_and_the_next_continues(
    bootstrap: str, name: Name, started: Callable[..., Member]
) -> None:
    topic, group = name("work"), name("team")
    with Client(bootstrap) as client:
        topic_admin.create(client, [topic], partitions=PARTITIONS)
        write(client, topic, range(8))
        late = started(topic, group, "--from", "end")
        late.end()
        assert late.read == []
        write(client, topic, range(8, 16))
        few = started(topic, group, "-n", "3")
        few.end()
        rest = started(topic, group)
        rest.end()
        assert len(few.read) == 3
        assert values(few, rest) == list(range(8, 16))


def test_it_shares_a_group_with_another_client(bootstrap: str, name: Name, started: Callable[..., Member]) -> None:
    topic, group = name("work"), name("team")
    other = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
        }
    )
    with Client(bootstrap) as client, contextlib.closing(other):
        topic_admin.create(client, [topic], partitions=PARTITIONS)
        other.subscribe([topic])
        wait_until(lambda: other.poll(0.05) is None and len(other.assignment()) == PARTITIONS, "the other reads all")
        mine = started(topic, group, "--follow")

        def is_shared() -> bool:
            other.poll(0.05)
            return len(other.assignment()) == PARTITIONS // 2 and has_members(client, group, 2)()

        wait_until(is_shared, "each reads a half")
        write(client, topic, range(40))
        read: list[int] = []

        def is_read() -> bool:
            message = other.poll(0.05)
            if message is not None and message.error() is None:
                read.append(int(message.value() or b""))
            return sorted(read + values(mine)) == list(range(40))

        wait_until(is_read, "both together read everything, once")
        assert len(read) == 20
        mine.end(signal.SIGINT)


def test_a_static_member_keeps_its_place_until_it_is_replaced(
    bootstrap: str, name: Name, started: Callable[..., Member]
) -> None:
    topic, group = name("work"), name("team")
    static = (topic, group, "--follow", "--group-instance-id", "one")
    with Client(bootstrap) as client:
        topic_admin.create(client, [topic], partitions=PARTITIONS)
        write(client, topic, range(4))
        first = started(*static)
        wait_until(lambda: values(first) == list(range(4)), "the first one reads everything")
        first.end(signal.SIGINT)
        assert has_members(client, group, 1)(), "a static member stays in the group after its process ends"
        write(client, topic, range(4, 8))
        second = started(*static)
        wait_until(lambda: values(second) == list(range(4, 8)), "the next one continues there")
        [member] = group_admin.describe(client, group).members
        assert member.instance_id == "one"
        third = started(*static)
        _, said = second.process.communicate(timeout=BOUND_S)
        assert second.process.returncode == 1
        assert b"(FENCED_INSTANCE_ID)" in said
        assert said.count(b"\n") == 1
        write(client, topic, range(8, 12))
        wait_until(lambda: set(values(third)) >= set(range(8, 12)), "the last one has replaced it")
        third.end(signal.SIGINT)


def test_a_leader_that_was_fenced_is_an_outage_and_is_looked_up_again(bootstrap: str, topic: str) -> None:
    """Metadata does not list a fenced broker, although the reader still considers it the leader."""
    with Client(bootstrap) as client:
        [found] = topic_admin.topics(client, [topic])
        stale = replace(found, partitions=tuple(replace(one, leader=99) for one in found.partitions))
        reader = Reader(client, stale, parse_position("beginning"), follow=True)
        reader.assign([TopicPartition(topic, 0)], {})
        with pytest.raises(UnreachableError, match="there is no broker 99"):
            list(reader.poll())
        producer = Producer(client, topic, "none", 0)
        producer.add((-1, None, b"read", []))
        producer.flush()
        read: list[bytes | None] = []

        def look() -> list[bytes | None]:
            read.extend(one.record.value for one in reader.poll())
            return read

        wait_until(lambda: look() == [b"read"], "the record")
