"""The consumer protocol (KIP-848) with librdkafka and klamm's own member, and how klamm shows such groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

import klamm
from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.cli.main import run
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.share_groups import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from klamm.protocol.topic_partition import TopicPartition as Place
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

Name = Callable[[str], str]
PARTITIONS = 4
BOUND_S = 60.0

QUICK = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
}
"""Members learn of changes with their heartbeats, every 5 seconds by default."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose members send heartbeats often; `KLAMM_TEST_BOOTSTRAP` names another broker."""
    given = os.environ.get("KLAMM_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", overrides=QUICK) as running:
        yield running.bootstrap


@pytest.fixture
def topic(address: str, name: Name) -> str:
    """Four partitions of one record each."""
    made = name("topic")
    with Client(address) as client:
        topic_admin.create(client, [made], partitions=PARTITIONS)
    produce(address, made, range(PARTITIONS))
    return made


def produce(address: str, topic: str, values: Sequence[int]) -> None:
    """Produce records to the partitions in turn."""
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    for value in values:
        producer.produce(topic, value=b"%d" % value, partition=value % PARTITIONS)
    assert producer.flush(BOUND_S) == 0


@contextlib.contextmanager
def member(address: str, group: str, *topics: str, **settings: Any) -> Iterator[Consumer]:
    fixed = {
        "bootstrap.servers": address,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(fixed | settings)
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[Message]:
    """Poll every consumer until the condition holds; returns the records."""
    deadline, read = time.monotonic() + BOUND_S, []
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        read += [message for consumer in consumers if (message := consumer.poll(0.05)) is not None]
    return [message for message in read if message.error() is None]


def take(consumer: Consumer, read: list[Message]) -> list[Message]:
    """Add the next record, if there is one; returns all so far."""
    message = consumer.poll(0.05)
    if message is not None and message.error() is None:
        read.append(message)
    return read


def owned(consumer: Consumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_take_over(address: str, topic: str, name: Name, assignor: str) -> None:
    group, settings = name("group"), {"group.remote.assignor": assignor}
    with member(address, group, topic, **settings) as first, Client(address) as client:
        poll_until(lambda: owned(first) == {0, 1, 2, 3}, first)
        with member(address, group, topic, **settings) as second:
            poll_until(lambda: len(owned(first)) == len(owned(second)) == 2, first, second)
            assert owned(first) | owned(second) == {0, 1, 2, 3}
            found = group_admin.describe(client, group)
            assert (found.kind, found.assignor, len(found.members)) == ("consumer", assignor, 2)
        poll_until(lambda: owned(first) == {0, 1, 2, 3}, first)


def test_a_static_member_that_restarts_moves_nothing(address: str, topic: str, name: Name) -> None:
    group = name("group")
    with member(address, group, topic, **{"group.instance.id": "stays"}) as stays, Client(address) as client:
        with member(address, group, topic, **{"group.instance.id": "restarts"}) as restarts:
            poll_until(lambda: len(owned(stays)) == len(owned(restarts)) == 2, stays, restarts)
            had, kept = owned(restarts), owned(stays)
        epoch = group_admin.describe(client, group).epoch
        with member(address, group, topic, **{"group.instance.id": "restarts"}) as restarted:
            poll_until(lambda: owned(restarted) == had, stays, restarted)
            assert owned(stays) == kept
            found = group_admin.describe(client, group)
    assert {one.instance_id for one in found.members} == {"stays", "restarts"}
    assert found.epoch == epoch, "no member had to rebalance"


def test_the_next_member_continues_at_the_commit(address: str, topic: str, name: Name) -> None:
    group = name("group")
    with member(address, group, topic) as first:
        poll_until(lambda: len(owned(first)) == PARTITIONS, first)
        first.commit(offsets=[TopicPartition(topic, at, 1) for at in range(PARTITIONS)], asynchronous=False)
    with Client(address) as client:
        assert {one.lag for one in group_admin.describe(client, group).positions} == {0}
    produce(address, topic, [4])
    with member(address, group, topic) as second:
        read: list[Message] = []
        wait_until(lambda: take(second, read), "a record", bound_s=BOUND_S)
    assert [message.value() for message in read] == [b"4"]


@pytest.mark.slow
def test_a_pattern_is_resolved_by_the_coordinator(address: str, name: Name) -> None:
    """The coordinator looks for new topics at most every 10 seconds."""
    group, prefix = name("group"), name("matched")
    with Client(address) as client:
        topic_admin.create(client, [f"{prefix}.1", f"other.{prefix}"], partitions=2)
        with member(address, group, rf"^{prefix}\.\d+$") as consumer:
            poll_until(lambda: len(consumer.assignment()) == 2, consumer)
            [described] = group_admin.describe(client, group).members
            assert described.subscribed_regex is not None
            topic_admin.create(client, [f"{prefix}.2"], partitions=3)
            poll_until(lambda: len(consumer.assignment()) == 5, consumer)
            assert {one.topic for one in consumer.assignment()} == {f"{prefix}.1", f"{prefix}.2"}


class Reader:
    """`klamm consume TOPIC --group GROUP --group-protocol consumer --json` in its own process."""

    def __init__(self, address: str, output: Path, topic: str, group: str, *options: str) -> None:
        self.output = output
        command = [sys.executable, "-m", "klamm", "consume", topic, "--group", group, "--json", "-b", address]
        with output.open("wb") as stdout:
            self.process = subprocess.Popen(
                [*command, "--group-protocol", "consumer", *options],
                stdout=stdout,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                env=os.environ,
            )

    @property
    def values(self) -> list[int]:
        lines = self.output.read_text().splitlines(keepends=True)
        return [int(json.loads(line)["value"]) for line in lines if line[-1:] == "\n"]

    def check_running(self) -> None:
        assert self.process.stderr is not None
        assert self.process.poll() is None, self.process.stderr.read().decode()

    def end(self, number: int | None = None) -> None:
        """Wait for its end, or stop it; it must not have failed."""
        if number is not None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=BOUND_S)
        assert (self.process.returncode, said.strip()) == (0, b"")


@pytest.fixture
def started(address: str, tmp_path: Path) -> Iterator[Callable[..., Reader]]:
    """Starts readers, and kills those that a failed test leaves running."""
    readers: list[Reader] = []

    def start(topic: str, group: str, *options: str) -> Reader:
        readers.append(Reader(address, tmp_path / f"{len(readers)}.out", topic, group, *options))
        return readers[-1]

    yield start
    for one in readers:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.wait()


def has_members(client: Client, group: str, count: int) -> Callable[[], bool]:
    def holds() -> bool:
        found = group_admin.describe(client, group)
        return (found.state, len(found.members)) == ("Stable" if count else "Empty", count)

    return holds


def test_klamm_consume_shares_with_another_and_with_librdkafka(
    address: str, topic: str, name: Name, started: Callable[..., Reader]
) -> None:
    group = name("group")
    with Client(address) as client:
        first = started(topic, group, "--follow")
        wait_until(lambda: sorted(first.values) == [0, 1, 2, 3], "the first one reads everything")
        second = started(topic, group, "--follow")
        wait_until(has_members(client, group, 2), "two members", bound_s=BOUND_S)
        produce(address, topic, range(4, 44))
        wait_until(lambda: sorted(first.values + second.values) == list(range(44)), "both read everything, once")
        assert len({value % PARTITIONS for value in second.values}) == 2
        with member(address, group, topic) as other:
            poll_until(lambda: len(owned(other)) == 1, other)
            poll_until(has_members(client, group, 3), other)
        second.end(signal.SIGINT)
        wait_until(has_members(client, group, 1), "the others have left, and are not waited for", bound_s=BOUND_S)
        produce(address, topic, range(44, 48))
        wait_until(lambda: set(first.values + second.values) >= set(range(48)), "the first one reads the rest")
        first.end(signal.SIGTERM)
        wait_until(has_members(client, group, 0), "a group without members")
        assert {one.lag for one in group_admin.describe(client, group).positions} == {0}


def test_klamm_consume_ends_at_the_end_of_the_log(
    address: str, topic: str, name: Name, started: Callable[..., Reader]
) -> None:
    group = name("group")
    few = started(topic, group, "-n", "3")
    few.end()
    rest = started(topic, group)
    rest.end()
    assert len(few.values) == 3
    assert sorted(few.values + rest.values) == [0, 1, 2, 3]


def test_klamm_consume_as_a_static_member(address: str, topic: str, name: Name, started: Callable[..., Reader]) -> None:
    group = name("group")
    static = (topic, group, "--follow", "--group-instance-id", "one")
    with Client(address) as client:
        first = started(*static)
        wait_until(lambda: sorted(first.values) == [0, 1, 2, 3], "the first one reads everything")
        first.end(signal.SIGINT)
        [member] = group_admin.describe(client, group).members
        assert (member.instance_id, member.epoch, len(member.target)) == ("one", -2, PARTITIONS)
        produce(address, topic, [4])
        second = started(*static)
        wait_until(lambda: second.values == [4], "the next one continues there")
        third = started(*static)
        _, said = third.process.communicate(timeout=BOUND_S)
        assert third.process.returncode == 1
        assert b"(UNRELEASED_INSTANCE_ID)" in said
        second.end(signal.SIGINT)


def test_groups_members_follows_the_group(address: str, topic: str, name: Name, tmp_path: Path) -> None:
    group, output = name("group"), tmp_path / "out"
    command = [sys.executable, "-m", "klamm", "groups", "members", group, "--follow", "-b", address]
    with output.open("wb") as stdout:
        follower = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ)
    try:
        with member(address, group, topic) as consumer:
            poll_until(lambda: f"{topic}-0..3" in output.read_text(), consumer)
        wait_until(lambda: "left; it had" in output.read_text(), output.read_text, bound_s=BOUND_S)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(BOUND_S) == 0
    finally:
        follower.kill()
        follower.communicate()


def test_groups_describe_shows_members_epochs_and_lag(
    address: str, topic: str, name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    group = name("group")
    with member(address, group, topic) as consumer:
        poll_until(lambda: len(owned(consumer)) == PARTITIONS, consumer)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        with Client(address) as client:
            poll_until(has_members(client, group, 1), consumer)
        assert run(["groups", "describe", group, "--json", "-b", address]) == 0
        found = json.loads(capsys.readouterr().out)
        assert run(["groups", "list", "--json", "-b", address]) == 0
        listed = {one["name"]: one["type"] for one in json.loads(capsys.readouterr().out)}
    assert (found["type"], found["state"], found["epoch"]) == ("consumer", "Stable", found["assignment_epoch"])
    [described] = found["members"]
    assert described["protocol"] == "consumer"
    assert described["subscribed"] == [topic]
    assert [one["partition"] for one in described["assigned"]] == [0, 1, 2, 3]
    assert [(one["committed"], one["lag"]) for one in found["offsets"]] == [(1, 0), *[(-1, None)] * 3]
    assert listed[group] == "consumer"


def test_groups_describe_shows_share_groups(
    address: str, topic: str, name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    group = name("group")
    with Client(address) as client:
        coordinator = client.coordinator(group)
        epoch = 0

        def owned_partitions() -> int:
            nonlocal epoch
            request = ShareGroupHeartbeatRequest(group, "one", epoch, subscribed_topic_names=(topic,))
            answer = coordinator.ask(request, ShareGroupHeartbeatResponse, 1)
            epoch = answer.member_epoch
            topics = answer.assignment.topic_partitions if answer.assignment is not None else ()
            return sum(len(one.partitions) for one in topics)

        wait_until(lambda: owned_partitions() == PARTITIONS, "initialized and assigned", bound_s=BOUND_S)
        assert run(["groups", "describe", group, "--json", "-b", address]) == 0
        found = json.loads(capsys.readouterr().out)
    assert (found["type"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
    [described] = found["members"]
    assert (described["id"], described["epoch"], len(described["assigned"])) == ("one", epoch, PARTITIONS)
    assert [(one["partition"], one["log_end"]) for one in found["offsets"]] == [(at, 1) for at in range(PARTITIONS)]


def test_groups_reset_offsets_of_a_share_group(
    address: str, topic: str, name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    group = name("group")
    with Client(address) as client:
        group_admin.alter_start_offsets(client, group, {Place(topic, at): 1 for at in range(2)})
        assert run(["groups", "reset-offsets", group, "--to", "beginning", "-t", f"{topic}:0", "-b", address]) == 0
        assert "nothing is changed yet" in capsys.readouterr().err
        before = {(topic, 0): 1, (topic, 1): 1}
        assert group_admin.start_offsets(client, group) == before
        assert run(["groups", "reset-offsets", group, "--to", "beginning", "-x", "--json", "-b", address]) == 0
        assert json.loads(capsys.readouterr().out) == [
            {"topic": topic, "partition": at, "offset": 0} for at in range(2)
        ]
        assert group_admin.start_offsets(client, group) == dict.fromkeys(before, 0)


def test_a_cluster_shows_its_groups() -> None:
    with klamm.Cluster(config=QUICK) as cluster:
        cluster.create_topic("work", partitions=PARTITIONS)
        produce(cluster.bootstrap_servers, "work", range(PARTITIONS))
        with pytest.raises(KafkaError, match="there is no group 'absent'"):
            cluster.group("absent")
        with member(cluster.bootstrap_servers, "team", "work") as consumer:
            poll_until(lambda: len(owned(consumer)) == PARTITIONS, consumer)
            consumer.commit(offsets=[TopicPartition("work", 1, 1)], asynchronous=False)
            poll_until(lambda: cluster.group("team").state == "Stable", consumer)
            found = cluster.group("team")
        assert (found.kind, found.assignor, found.epoch) == ("consumer", "uniform", found.assignment_epoch)
        [only] = found.members
        assert only.epoch == found.epoch
        assert only.assigned == only.target
        assert sorted(found.lag.values(), key=str) == [0, None, None, None]
        assert cluster.group("team").state == "Empty"


def test_a_cluster_shows_its_share_groups() -> None:
    starts = tuple(AlteredPartition(at, at) for at in range(2))
    request = AlterShareGroupOffsetsRequest("shared", (AlteredTopic("work", starts),))
    with klamm.Cluster(config=QUICK) as cluster, Client(cluster.bootstrap_servers) as client:
        cluster.create_topic("work", partitions=PARTITIONS)
        produce(cluster.bootstrap_servers, "work", range(PARTITIONS))
        answer = client.coordinator("shared").ask(request, AlterShareGroupOffsetsResponse, 0)
        assert answer.error_code is ErrorCode.NONE
        found = cluster.group("shared")
    assert (found.kind, found.state) == ("share", "Empty")
    assert list(found.committed.items()) == [(("work", at), at) for at in range(2)]
    assert list(found.lag.items()) == [(("work", 0), 1), (("work", 1), 0)]


@contextlib.contextmanager
def librdkafka_members(address: str, folder: Path) -> Iterator[Callable[[], list[int]]]:
    """Two members; the function polls, and returns all records so far."""
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 200}
    read: list[Message] = []
    with member(address, "team", "work", **settings) as first, member(address, "team", "work", **settings) as second:

        def look() -> list[int]:
            return [int(message.value() or b"") for message in take(second, take(first, read))]

        yield look


@contextlib.contextmanager
def klamm_members(address: str, folder: Path) -> Iterator[Callable[[], list[int]]]:
    """Two processes of `klamm consume`; the function returns all records so far."""
    readers = [Reader(address, folder / f"{at}.out", "work", "team", "--follow") for at in range(2)]

    def look() -> list[int]:
        for one in readers:
            one.check_running()
        return readers[0].values + readers[1].values

    try:
        yield look
    finally:
        for one in readers:
            one.process.kill()
            one.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("members", [librdkafka_members, klamm_members])
def test_members_continue_after_their_coordinator_was_killed(
    members: Callable[[str, Path], contextlib.AbstractContextManager[Callable[[], list[int]]]], tmp_path: Path
) -> None:
    """Every record is read, and both members keep sharing the partitions."""
    with klamm.Cluster(tmp_path / "data", brokers=3, config=QUICK) as cluster:
        cluster.create_topic("work", partitions=PARTITIONS, replication_factor=3)
        address = cluster.bootstrap_servers
        with members(address, tmp_path) as look:

            def is_shared() -> bool:
                look()
                with contextlib.suppress(KafkaError):
                    return sorted(len(one.assigned) for one in cluster.group("team").members) == [2, 2]
                return False

            def read_up_to(end: int) -> None:
                produce(address, "work", range(end - 40, end))
                missing = lambda: sorted(set(range(end)) - set(look()))  # noqa: E731
                wait_until(lambda: not missing(), missing, bound_s=BOUND_S)

            read_up_to(40)
            wait_until(is_shared, "both have a half", bound_s=BOUND_S)
            coordinator = cluster.brokers[coordinator_of(cluster, "team")]
            coordinator.kill()
            read_up_to(80)
            coordinator.start()
            read_up_to(120)
            wait_until(is_shared, "both have a half again", bound_s=BOUND_S)


def coordinator_of(cluster: klamm.Cluster, group: str) -> int:
    """The index of the broker that coordinates a group."""
    with Client(cluster.bootstrap_servers) as client:
        address = client.coordinator(group).address
    [found] = [at for at, broker in enumerate(cluster.brokers) if broker.address == address]
    return found
