"""Apache Kafka's command line tools against three brokers, each of which is killed and returns."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from tests.interop.apache_kafka import Tools
from tests.interop.applications.cluster import PARTITIONS, PATIENCE_S, SETTINGS, Numbers, bootstrap, committed
from tests.interop.applications.replica_verification import ReplicaVerification
from tests.support.broker_processes import BrokerProcess, created
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

KEPT = "kept"
MOVED = "moved"
BATCHES, BATCH_BYTES = 120, 50_000
"""Of the moved partition: more than a fetch that no throttle delays can copy."""


class Described(NamedTuple):
    """A partition as kafka-topics shows it."""

    leader: int
    replicas: list[int]
    isr: list[int]


class Operator:
    """Runs the tools against the cluster."""

    def __init__(self, tools: Tools, folder: Path, servers: str) -> None:
        self._tools, self._folder = tools, folder
        self.servers = servers

    def run(self, tool: str, *arguments: str, code: int = 0) -> str:
        """What the tool prints to both streams; asserts its exit code."""
        done = self._tools(tool, "--bootstrap-server", self.servers, *arguments, check=False)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{tool} {arguments}: {done.returncode}\n{printed}"
        return printed

    def cluster(self, *command: str) -> str:
        """kafka-cluster, whose command comes first."""
        return self._tools("cluster", command[0], "--bootstrap-server", self.servers, *command[1:]).stdout

    def topic(self, name: str, *options: str) -> dict[int, Described]:
        """The partitions of a topic that kafka-topics --describe shows with these options."""
        printed = self.run("topics", "--describe", "--if-exists", "--topic", name, *options)
        found = re.findall(
            rf"Topic: {name}\tPartition: (\d+)\tLeader: (\w+)\tReplicas: ([\d,]*)\tIsr: ([\d,]*)", printed
        )
        return {
            int(index): Described(-1 if leader == "none" else int(leader), _ids(replicas), _ids(isr))
            for index, leader, replicas, isr in found
        }

    def reassign(self, *action: str, replicas: Mapping[int, Sequence[int]], code: int = 0) -> str:
        """kafka-reassign-partitions for partitions of the moved topic."""
        wanted = [{"topic": MOVED, "partition": index, "replicas": list(each)} for index, each in replicas.items()]
        return self.run("reassign-partitions", *self._file(wanted), *action, code=code)

    def move_dir(self, *action: str, broker_id: int, path: Path) -> str:
        """kafka-reassign-partitions for the log directory of partition 0 of the kept topic on one broker."""
        replicas = self.topic(KEPT)[0].replicas
        dirs = [str(path) if each == broker_id else "any" for each in replicas]
        return self.run(
            "reassign-partitions",
            *self._file([{"topic": KEPT, "partition": 0, "replicas": replicas, "log_dirs": dirs}]),
            *action,
        )

    def _file(self, partitions: list[dict[str, Any]]) -> tuple[str, str]:
        file = self._folder / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return "--reassignment-json-file", str(file)

    def log_dirs(self) -> dict[int, dict[Path, dict[str, dict[str, Any]]]]:
        """By broker and directory, the partitions of the kept topic."""
        *_, described = self.run("log-dirs", "--describe", "--topic-list", KEPT).strip().splitlines()
        found: dict[int, dict[Path, dict[str, dict[str, Any]]]] = {}
        for broker in json.loads(described)["brokers"]:
            assert all(each["error"] is None for each in broker["logDirs"]), described
            found[broker["broker"]] = {
                Path(each["logDir"]): {one["partition"]: one for one in each["partitions"]}
                for each in broker["logDirs"]
            }
        return found


def _ids(listed: str) -> list[int]:
    return [int(each) for each in listed.split(",") if each]


def second_dir(node: BrokerProcess) -> Path:
    """Its other log directory."""
    return node.data / "second"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Three nodes of both roles, each with two log directories."""
    with contextlib.ExitStack() as stack:
        nodes = [BrokerProcess(files) for files in created(tmp_path / "cluster", 3, SETTINGS)]
        for node in nodes:
            node.add_log_dir(second_dir(node))
            node.launch()
            stack.callback(node.kill)
        for node in nodes:
            wait_until(node.answers_metadata, bound_s=60)
        yield nodes


@pytest.fixture
def operator(brokers: list[BrokerProcess], tools: Tools, tmp_path: Path) -> Operator:
    """With the two topics: each broker is the preferred leader of a partition of the kept one."""
    made = Operator(tools, tmp_path, bootstrap(brokers))
    made.run("topics", "--create", "--topic", KEPT, "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    made.run("topics", "--create", "--topic", MOVED, "--replica-assignment", "1:2")
    producer = Producer({"bootstrap.servers": made.servers})
    for _ in range(BATCHES):
        producer.produce(MOVED, os.urandom(BATCH_BYTES), partition=0)
        producer.flush(PATIENCE_S)
    return made


def test_tools_through_failovers(brokers: list[BrokerProcess], operator: Operator, tmp_path: Path) -> None:
    cluster_id = operator.cluster("cluster-id")
    verification = ReplicaVerification(tmp_path, operator.servers, KEPT)
    verification.start()
    wait_until(verification.reports, verification.log, bound_s=60)
    numbers = Numbers(operator.servers, KEPT)
    try:
        for killed, node in enumerate(brokers, 1):
            others = [each for each in (1, 2, 3) if each != killed]
            target = [others[0], killed]
            begin_moves(operator, killed, target, second_dir(node))
            node.kill()
            wait_until(lambda: is_without(operator, killed), bound_s=60)  # noqa: B023 - called before the next
            assert operator.cluster("cluster-id") == cluster_id
            topics_and_configs_change(operator, killed, others)
            check_what_is_missing(operator, killed, others)
            check_the_reassignment(operator, killed, target)
            node.start(timeout_s=60)
            end_moves(operator, killed, target, second_dir(node))
            check_everything_is_back(operator, killed)
    finally:
        numbers.stop()
        before = len(verification.reports())
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: 0 in verification.reports()[before:], bound_s=120)
        verification.kill()
    found = committed(operator.servers, KEPT, PARTITIONS)
    for index, values in found.items():
        assert values == [str(number) for number in range(index, PARTITIONS * len(values), PARTITIONS)]
        assert len(values) > 100
    assert 0 in verification.reports()[before:], verification.log()
    assert verification.differences() == []


def begin_moves(operator: Operator, killed: int, target: list[int], path: Path) -> None:
    """A replica is added on the broker that is about to die, slowly; another one of it changes its directory."""
    others = [each for each in (1, 2, 3) if each != killed]
    operator.reassign("--execute", replicas={0: others})
    wait_until(lambda: "is completed" in operator.reassign("--verify", replicas={0: others}), bound_s=60)
    started = operator.reassign("--execute", "--throttle", "1000", replicas={0: target})
    assert f"Successfully started partition reassignment for {MOVED}-0" in started
    moving = operator.move_dir("--execute", "--additional", broker_id=killed, path=path)
    assert "Successfully started moving log directory" in moving


def is_without(operator: Operator, killed: int) -> bool:
    """Whether the broker leads nothing of the kept topic and is in no ISR of it."""
    partitions = operator.topic(KEPT).values()
    return all(killed not in each.isr and each.leader in each.isr for each in partitions)


def topics_and_configs_change(operator: Operator, killed: int, others: list[int]) -> None:
    """kafka-topics and kafka-configs, which change the cluster while a broker is dead."""
    name = f"made-{killed}"
    operator.run("topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "2")
    # The tool asks any broker, and each learns of the topic in its own time.
    wait_until(lambda: {each for one in operator.topic(name).values() for each in one.replicas} == set(others))
    operator.run("topics", "--alter", "--topic", name, "--partitions", "4")
    wait_until(lambda: len(operator.topic(name)) == 4)
    listed = operator.run("topics", "--list").split()
    assert {KEPT, MOVED, name} <= set(listed)
    operator.run("topics", "--delete", "--topic", name)
    wait_until(lambda: name not in operator.run("topics", "--list").split())

    retention = f"retention.ms={3_600_000 + killed}"
    topic = "--entity-type", "topics", "--entity-name", KEPT
    operator.run("configs", "--alter", *topic, "--add-config", retention)
    wait_until(lambda: retention in operator.run("configs", "--describe", *topic))
    brokers = "--entity-type", "brokers", "--entity-default"
    operator.run("configs", "--alter", *brokers, "--add-config", f"log.cleaner.threads={1 + killed}")
    wait_until(lambda: f"log.cleaner.threads={1 + killed}" in operator.run("configs", "--describe", *brokers))


def check_what_is_missing(operator: Operator, killed: int, others: list[int]) -> None:
    """What the tools say about partitions, brokers and directories while a broker is dead."""
    under_replicated = operator.topic(KEPT, "--under-replicated-partitions")
    assert {index: sorted(each.isr) for index, each in under_replicated.items()} == dict.fromkeys(range(3), others)
    assert operator.topic(KEPT, "--under-min-isr-partitions") == {}
    assert operator.topic(KEPT, "--unavailable-partitions") == {}
    assert len(operator.topic(KEPT, "--at-min-isr-partitions")) == 3
    assert states(operator.cluster("list-endpoints")) == dict.fromkeys(others, "unfenced")
    everything = operator.cluster("list-endpoints", "--include-fenced-brokers")
    assert states(everything) == {killed: "fenced"} | dict.fromkeys(others, "unfenced")
    assert sorted(operator.log_dirs()) == others
    alone = operator.run("log-dirs", "--describe", "--broker-list", str(killed), code=1)
    assert f"The given brokers do not exist from --broker-list: {killed}" in alone
    [preferred] = [index for index, each in operator.topic(KEPT).items() if each.replicas[0] == killed]
    one = "--topic", KEPT, "--partition", str(preferred)
    assert "PreferredLeaderNotAvailableException" in operator.run(
        "leader-election", "--election-type", "preferred", *one, code=1
    )
    assert "Valid replica already elected" in operator.run("leader-election", "--election-type", "unclean", *one)


def states(endpoints: str) -> dict[int, str]:
    """The state of each broker that kafka-cluster list-endpoints shows."""
    return {int(row[0]): row[-2] for row in map(str.split, endpoints.splitlines()[1:])}


def check_the_reassignment(operator: Operator, killed: int, target: list[int]) -> None:
    """It goes on without the broker that it adds; that of broker 2 is cancelled."""
    assert "is still in progress" in operator.reassign("--verify", replicas={0: target})
    listed = operator.run("reassign-partitions", "--list")
    assert re.search(rf"{MOVED}-0: replicas: [\d,]+\. adding: {killed}\. removing: \d\.", listed), listed
    # The tool itself takes only brokers that live.
    refused = operator.reassign("--execute", "--additional", replicas={0: target}, code=1)
    assert f"Unknown broker id {killed}" in refused
    if killed == 2:
        assert "Successfully cancelled partition reassignment" in operator.reassign(
            "--cancel", "--preserve-throttles", replicas={0: target}
        )
        assert "No partition reassignments found" in operator.run("reassign-partitions", "--list")
        assert killed not in operator.topic(MOVED)[0].replicas


def end_moves(operator: Operator, killed: int, target: list[int], path: Path) -> None:
    """Both moves end once the broker is back; without the throttle, or they would take hours."""
    added = "--execute", "--additional", "--throttle", "1000000000"
    wait_until(lambda: sorted(states(operator.cluster("list-endpoints"))) == [1, 2, 3], bound_s=60)
    operator.reassign(*added, replicas={0: target})
    wait_until(lambda: "is completed" in operator.reassign("--verify", replicas={0: target}), bound_s=PATIENCE_S)
    assert sorted(operator.topic(MOVED)[0].isr) == sorted(target)
    topic = "--entity-type", "topics", "--entity-name", MOVED
    assert "throttled" not in operator.run("configs", "--describe", *topic)
    done = f"Reassignment of replica {KEPT}-0-{killed} completed successfully."
    wait_until(lambda: done in operator.move_dir("--verify", broker_id=killed, path=path), bound_s=PATIENCE_S)


def check_everything_is_back(operator: Operator, killed: int) -> None:
    """The broker is in every ISR again, leads what it is preferred for, and has what changed without it."""
    wait_until(lambda: operator.topic(KEPT, "--under-replicated-partitions") == {}, bound_s=PATIENCE_S)
    operator.run("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    wait_until(lambda: {index: each.leader for index, each in operator.topic(KEPT).items()} == {0: 1, 1: 2, 2: 3})
    own = operator.run("configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", str(killed))
    assert f"DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads={1 + killed}" in own
    dirs = operator.log_dirs()
    assert sorted(dirs) == [1, 2, 3]
    for broker, of_broker in dirs.items():
        names = sorted(name for partitions in of_broker.values() for name in partitions)
        assert names == [f"{KEPT}-{index}" for index in range(3)], broker
        assert not any(one["isFuture"] for partitions in of_broker.values() for one in partitions.values())
    [place] = [path.name for path, partitions in dirs[killed].items() if f"{KEPT}-0" in partitions]
    assert place == "second"
