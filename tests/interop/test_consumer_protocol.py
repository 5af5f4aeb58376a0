"""Apache Kafka's Java consumer with the consumer protocol (KIP-848), on one and on three klamm brokers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klamm import Cluster
from klamm.admin.client import Client
from klamm.embedded.groups import GroupState
from klamm.protocol.errors import KafkaError
from tests.interop.apache_kafka import java, tool
from tests.support.foreign import require
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

PROGRAM = Path(__file__).with_name("ConsumerMember.java")
PARTITIONS = 4
BOUND_S = 90.0


class JavaMember:
    """A consumer in its own JVM."""

    def __init__(self, cluster: Cluster, output: Path, subscription: str, group: str, **settings: str) -> None:
        self._output = output
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "metadata.max.age.ms": "1000",
        }
        given = [f"{key}={value}" for key, value in (config | settings).items()]
        with output.open("wb") as stdout:
            self.process = subprocess.Popen(
                java(str(PROGRAM), subscription, *given),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=output.with_suffix(".err").open("wb"),
            )

    @property
    def lines(self) -> list[list[str]]:
        """The lines of its output, split into words."""
        return [line.split() for line in self._output.read_text().splitlines()]

    @property
    def values(self) -> list[int]:
        """The values that it has read."""
        return [int(line[1]) for line in self.lines if line[0] == "read"]

    @property
    def owned(self) -> set[str]:
        """The partitions that it owns."""
        owned: set[str] = set()
        for kind, *partitions in self.lines:
            owned = owned.union(partitions) if kind == "assigned" else owned
            owned = owned.difference(partitions) if kind in ("revoked", "lost") else owned
        return owned

    @property
    def moved(self) -> int:
        """How often partitions were assigned or revoked."""
        return sum(len(line) > 1 for line in self.lines if line[0] in ("assigned", "revoked", "lost"))

    def close(self) -> None:
        """Close the consumer, and wait until it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.close()
        assert self.process.wait(BOUND_S) == 0, self._output.with_suffix(".err").read_text()[-2000:]


Start = Callable[..., JavaMember]


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require("java", "javac", "mvn")
    config = {
        "offsets.topic.num.partitions": "3",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.assignment.interval.ms": "0",
    }
    with Cluster(tmp_path_factory.mktemp("cluster") / "data", brokers=request.param, config=config) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    cluster.create_topic(name, partitions=PARTITIONS, replication_factor=min(3, len(cluster.brokers)))
    return name


@pytest.fixture
def start(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Start]:
    """Starts members of the group `topic`; those that a failed test leaves running are killed."""
    members: list[JavaMember] = []

    def begin(subscription: str = topic, **settings: str) -> JavaMember:
        members.append(JavaMember(cluster, tmp_path / f"{len(members)}.out", subscription, topic, **settings))
        return members[-1]

    yield begin
    for one in members:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.wait()


def produce(cluster: Cluster, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % PARTITIONS)
    assert producer.flush(BOUND_S) == 0


def group_of(cluster: Cluster, name: str) -> GroupState | None:
    """The group's description, if its coordinator is available and knows the group."""
    with contextlib.suppress(KafkaError):
        return cluster.group(name)
    return None


def has_shares(cluster: Cluster, name: str, *shares: int) -> Callable[[], bool]:
    def holds() -> bool:
        found = group_of(cluster, name)
        return (
            found is not None
            and found.state == ("Stable" if shares else "Empty")
            and tuple(sorted(len(one.assigned) for one in found.members)) == shares
        )

    return holds


def test_members_share_commit_and_take_over(cluster: Cluster, topic: str, start: Start) -> None:
    produce(cluster, topic, range(40))
    first = start()
    wait_until(lambda: sorted(first.values) == list(range(40)), "the first one reads everything", bound_s=BOUND_S)
    second = start()
    wait_until(has_shares(cluster, topic, 2, 2), "both have a half", bound_s=BOUND_S)
    produce(cluster, topic, range(40, 80))
    wait_until(lambda: set(first.values + second.values) == set(range(80)), "both read the rest", bound_s=BOUND_S)
    first.close()
    wait_until(has_shares(cluster, topic, 4), "the second one has all", bound_s=BOUND_S)
    second.close()
    wait_until(has_shares(cluster, topic), "no member is left", bound_s=BOUND_S)
    assert sorted(first.values + second.values) == list(range(80)), "each record once"
    assert set(cluster.group(topic).lag.values()) == {0}
    shown = tool("consumer-groups", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", topic)
    assert f"Consumer group '{topic}' has no active members." in shown.stdout + shown.stderr


def test_a_static_member_that_restarts_moves_nothing(cluster: Cluster, topic: str, start: Start) -> None:
    stays, restarts = start(**{"group.instance.id": "stays"}), start(**{"group.instance.id": "restarts"})
    wait_until(lambda: len(stays.owned) == len(restarts.owned) == 2, "both have a half", bound_s=BOUND_S)
    wait_until(has_shares(cluster, topic, 2, 2), "both have a half", bound_s=BOUND_S)
    before, moved, had = cluster.group(topic), stays.moved, restarts.owned
    restarts.close()
    again = start(**{"group.instance.id": "restarts"})
    wait_until(lambda: again.owned == had, "it is back", bound_s=BOUND_S)
    wait_until(has_shares(cluster, topic, 2, 2), "both have a half", bound_s=BOUND_S)
    after = cluster.group(topic)
    assert after.epoch == before.epoch
    assert {one.instance_id: one.target for one in after.members} == {
        one.instance_id: one.target for one in before.members
    }
    assert stays.moved == moved


def test_a_pattern_finds_new_topics(cluster: Cluster, topic: str, start: Start) -> None:
    member = start(rf"^{topic}(\.\d)?")
    wait_until(has_shares(cluster, topic, 4), "the topic of four partitions", bound_s=BOUND_S)
    cluster.create_topic(f"{topic}.1", partitions=2)
    cluster.create_topic(f"{topic}.other", partitions=2)
    wait_until(has_shares(cluster, topic, 6), lambda: group_of(cluster, topic), bound_s=BOUND_S)
    produce(cluster, f"{topic}.1", range(0, 4, 4))
    wait_until(lambda: member.values == [0], "a record of the new topic", bound_s=BOUND_S)


def test_members_go_on_after_their_coordinator_was_killed(cluster: Cluster, topic: str, start: Start) -> None:
    if len(cluster.brokers) == 1:
        pytest.skip("there is no other broker")
    members = [start(), start()]

    def read_up_to(end: int) -> None:
        produce(cluster, topic, range(end - 40, end))
        missing = lambda: set(range(end)).difference(*(one.values for one in members))  # noqa: E731
        wait_until(lambda: not missing(), missing, bound_s=BOUND_S)

    read_up_to(40)
    wait_until(has_shares(cluster, topic, 2, 2), "both have a half", bound_s=BOUND_S)
    with Client(cluster.bootstrap_servers) as client:
        address = client.coordinator(topic).address
    [coordinator] = [broker for broker in cluster.brokers if broker.address == address]
    coordinator.kill()
    read_up_to(80)
    coordinator.start()
    read_up_to(120)
    wait_until(has_shares(cluster, topic, 2, 2), "both have a half again", bound_s=BOUND_S)
    for one in members:
        one.close()
    assert set(cluster.group(topic).lag.values()) == {0}
