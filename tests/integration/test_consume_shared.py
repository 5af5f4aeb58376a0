"""`klamm consume --share`: a member of a share group in its own process (KIP-932)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import klamm
from klamm.admin import configs
from klamm.admin import groups as group_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.admin.membership import membership
from klamm.cli.main import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

BOUND_S = 60.0
PARTITIONS = 4
CONFIG = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[klamm.Cluster]:
    with klamm.Cluster(brokers=3, config=CONFIG) as made:
        yield made


@pytest.fixture
def group(cluster: klamm.Cluster, name: Callable[[str], str]) -> str:
    """A share group that reads from the beginning, and its topic of the same name."""
    made = name("shared")
    with Client(cluster.bootstrap_servers) as client:
        topic_admin.create(client, [made], partitions=PARTITIONS, replication_factor=3)
        configs.alter(client, "group", made, {"share.auto.offset.reset": "earliest"})
    return made


def produce(cluster: klamm.Cluster, topic: str, values: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(60) == 0


class Consumer:
    """`klamm consume TOPIC --share --group GROUP --json`; topic and group have the same name."""

    def __init__(self, cluster: klamm.Cluster, output: Path, group: str, *options: str) -> None:
        self._output = output
        command = [sys.executable, "-m", "klamm", "consume", group, "--share", "--group", group, "--json"]
        with output.open("wb") as stdout:
            self.process = subprocess.Popen(
                [*command, "-b", cluster.bootstrap_servers, *options],
                stdout=stdout,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                env=os.environ,
            )

    @property
    def records(self) -> list[dict[str, Any]]:
        lines = self._output.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line[-1:] == "\n"]

    @property
    def deliveries(self) -> list[tuple[int, int]]:
        """The value and the delivery count of each record."""
        return [(int(one["value"]), one["delivery_count"]) for one in self.records]

    @property
    def values(self) -> list[int]:
        return [value for value, _ in self.deliveries]

    def end(self, number: int | None = None) -> None:
        """Wait for its end, or stop it; it must not have failed."""
        if number is not None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=BOUND_S)
        assert (self.process.returncode, said.strip()) == (0, b"")


@pytest.fixture
def started(cluster: klamm.Cluster, group: str, tmp_path: Path) -> Iterator[Callable[..., Consumer]]:
    """Starts consumers, and kills those that a failed test leaves running."""
    made: list[Consumer] = []

    def start(*options: str) -> Consumer:
        made.append(Consumer(cluster, tmp_path / f"{len(made)}.out", group, *options))
        return made[-1]

    yield start
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.communicate()


def test_records_are_read_once_and_accepted(
    cluster: klamm.Cluster, group: str, started: Callable[..., Consumer]
) -> None:
    produce(cluster, group, range(40))
    first = started("--follow", "-n", "40")
    first.end()
    assert sorted(first.deliveries) == [(value, 1) for value in range(40)]
    produce(cluster, group, range(40, 44))
    second = started("--follow", "-n", "4")
    second.end()
    assert sorted(second.values) == [*range(40, 44)], "nothing is delivered again"


def test_members_share_a_partition(cluster: klamm.Cluster, group: str, started: Callable[..., Consumer]) -> None:
    both = [started("--follow"), started("--follow")]
    with Client(cluster.bootstrap_servers) as client:
        members = lambda: len(membership(client, group).members)  # noqa: E731
        wait_until(lambda: members() == 2, members, bound_s=BOUND_S)
        produce(cluster, group, range(200))
        found = lambda: sorted(both[0].values + both[1].values)  # noqa: E731
        wait_until(lambda: found() == [*range(200)], found, bound_s=BOUND_S)
        both[0].end(signal.SIGINT)
        both[1].end(signal.SIGTERM)
        wait_until(lambda: members() == 0, members, bound_s=BOUND_S)
        lag = lambda: sum(one.lag or 0 for one in group_admin.describe(client, group).positions)  # noqa: E731
        wait_until(lambda: lag() == 0, lag, bound_s=BOUND_S)


def test_records_that_are_not_printed_are_released(
    cluster: klamm.Cluster, group: str, started: Callable[..., Consumer]
) -> None:
    produce(cluster, group, [0] * 10)
    few = started("--follow", "-n", "3")
    few.end()
    rest = started("--follow", "-n", "7")
    rest.end()
    assert len(few.values) == 3
    assert sorted(one["offset"] for one in few.records + rest.records) == [*range(10)]


def test_released_records_are_delivered_again_and_rejected_ones_are_not(
    cluster: klamm.Cluster, group: str, started: Callable[..., Consumer]
) -> None:
    produce(cluster, group, [0])
    started("--follow", "--acknowledge", "release", "-n", "1").end()
    rejecting = started("--follow", "--acknowledge", "reject", "-n", "1")
    rejecting.end()
    assert rejecting.deliveries == [(0, 2)]
    after = started()
    after.end()
    assert after.values == []


def test_a_consumer_continues_after_a_broker_was_killed(
    cluster: klamm.Cluster, group: str, started: Callable[..., Consumer]
) -> None:
    produce(cluster, group, range(40))
    consumer = started("--follow")
    wait_until(lambda: sorted(consumer.values) == [*range(40)], lambda: consumer.values, bound_s=BOUND_S)
    for at in range(3):
        cluster.brokers[at].kill()
        cluster.brokers[at].start()
        produce(cluster, group, range(40 * at + 40, 40 * at + 80))
        seen = lambda end=40 * at + 80: set(range(end)) - set(consumer.values)  # noqa: E731
        wait_until(lambda look=seen: not look(), seen, bound_s=BOUND_S)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--share"], "--share needs --group"),
        (["--share", "--group", "g", "--from", "end"], "no start position"),
        (["--share", "--group", "g", "--acknowledge", "later"], "none of accept, release, reject"),
        (["--group", "g", "--acknowledge", "accept"], "--acknowledge needs --share"),
    ],
)
def test_options_that_exclude_each_other(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "t", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", "").split())
