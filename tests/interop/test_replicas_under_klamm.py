"""Three Apache Kafka 4.3.1 brokers replicate under klamm's controllers: ISRs, failover, reassignments."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm._engine.metadata import Image, PartitionInfo
from klamm.cli.main import run
from klamm.formats.storage import random_cluster_id
from klamm.metadata.log.history import History
from klamm.protocol.resource_types import ResourceType
from tests.interop.apache_kafka import KafkaNode, Tools
from tests.interop.test_roles import properties
from tests.support import foreign
from tests.support.ports import free_port
from tests.support.quorum_processes import HOST, FileNode
from tests.support.topic_reading import read_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

BOUND_S = 60.0
BROKERS = (1, 2, 3)
CONTROLLERS = (11, 12, 13)
SETTINGS = {
    # The leader of a stopped follower shrinks the ISR before the controller fences the follower.
    "replica.lag.time.max.ms": "1500",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}


class Kafka:
    """Brokers 1 to 3, and controllers from 11 on."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self.tools, self.folder = tools, folder
        cluster_id = random_cluster_id()
        ports = {each: free_port() for each in CONTROLLERS}
        self.controllers = {
            each: FileNode(folder, each, port, properties("controller", each, port, ports) | SETTINGS)
            for each, port in ports.items()
        }
        self.brokers = {each: KafkaNode(folder / f"java{each}") for each in BROKERS}
        for each, broker in self.brokers.items():
            broker.settings = properties("broker", each, broker.port, ports) | SETTINGS | {"log.dirs": str(broker.data)}
        for node in self.controllers.values():
            node.format(cluster_id)
            node.launch()
        for broker in self.brokers.values():
            broker.format(cluster_id)
            broker.start()
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wait_until(lambda: len(self.admin.list_topics(timeout=BOUND_S).brokers) == len(BROKERS), bound_s=BOUND_S)

    def close(self) -> None:
        for broker in self.brokers.values():
            with contextlib.suppress(AssertionError):
                os.kill(broker.pid, signal.SIGCONT)
            broker.kill()
        for node in self.controllers.values():
            node.kill()

    def create(self, topic: str, partitions: int, replicas: int) -> None:
        new = NewTopic(topic, partitions, replicas)
        self.admin.create_topics([new], request_timeout=BOUND_S)[topic].result(BOUND_S)
        wait_until(lambda: all(len(each.isr) == replicas for each in self.partitions(topic)), bound_s=BOUND_S)

    @property
    def image(self) -> Image:
        """The cluster in the log of a running controller."""
        running = next(node for node in self.controllers.values() if node.is_running)
        return History(running.data).state_at("end").image

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """None before the topic is created."""
        image = self.image
        topic_id = image.topic_id(topic)
        return [] if topic_id is None else image.partitions(topic_id)

    def until_isr(self, topic: str, isr: Sequence[int]) -> None:
        """Wait until each partition has this ISR."""

        def is_there() -> bool:
            found = self.partitions(topic)
            return bool(found) and all(sorted(each.isr) == sorted(isr) for each in found)

        wait_until(is_there, bound_s=BOUND_S)

    def reassign(self, *arguments: str, replicas: Mapping[str, Sequence[int]], check: bool = True) -> str:
        """kafka-reassign-partitions, for the replicas of partitions such as `t-0`."""
        wanted = [
            {"topic": name.rpartition("-")[0], "partition": int(name.rpartition("-")[2]), "replicas": list(each)}
            for name, each in replicas.items()
        ]
        file = self.folder / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        command = "--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(file), *arguments
        done = self.tools("reassign-partitions", *command, check=check)
        return done.stdout + done.stderr

    def leader_of_the_quorum(self) -> int:
        at = ",".join(f"{HOST}:{node.port}" for node in self.controllers.values() if node.is_running)
        described = self.tools("metadata-quorum", "--bootstrap-controller", at, "describe", "--status").stdout
        [leader] = [int(line.split()[-1]) for line in described.splitlines() if line.startswith("LeaderId:")]
        return leader


class Writer:
    """Produces with acks=all and idempotence until it is stopped; `written` holds what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._stopping = topic, threading.Event()
        self.written: list[bytes] = []
        self.failed: list[str] = []
        self._unanswered = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.002):
            self._producer.produce(self._topic, str(number), key=str(number), callback=self._done)
            self._producer.poll(0)
            number += 1
        self._unanswered = self._producer.flush(BOUND_S)

    def _done(self, error: Any, message: Any) -> None:
        if error is None:
            self.written.append(message.value())
        else:
            self.failed.append(str(error))

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        # A record without an acknowledgement may be in the log, and would look like a duplicate.
        assert kind is not None or self._unanswered == 0, f"{self._unanswered} records were not answered"


def read_all(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    whole = read_topic(bootstrap, topic, partitions, bound_s=2 * BOUND_S)
    return [value.encode() for partition in range(partitions) for _, value in whole.records[partition]]


def is_fenced(kafka: Kafka, broker_id: int) -> bool:
    broker = kafka.image.broker(broker_id)
    return broker is None or broker.fenced


@pytest.fixture(scope="module")
def kafka(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    foreign.require("java", "mvn")
    made = Kafka(tmp_path_factory.mktemp("kafka"), tools)
    yield made
    made.close()


def test_isrs_shrink_and_expand_through_stops_kills_and_a_new_controller(kafka: Kafka) -> None:
    kafka.create("t", 3, 3)
    with Writer(kafka.bootstrap, "t") as writer:
        # Stopped (SIGSTOP): the leaders shrink the ISR of their partitions. Then it is fenced: its own partitions fail
        # over.
        stopped = kafka.brokers[3].pid
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: any(sorted(each.isr) == [1, 2] for each in kafka.partitions("t")), bound_s=BOUND_S)
        assert not is_fenced(kafka, 3), "the controller shrank the ISR, not the leader"
        kafka.until_isr("t", (1, 2))
        os.kill(stopped, signal.SIGCONT)
        kafka.until_isr("t", BROKERS)
        # Killed together with the active controller, while leaders propose ISRs.
        kafka.brokers[1].kill()
        leader = kafka.leader_of_the_quorum()
        kafka.controllers[leader].kill()
        kafka.until_isr("t", (2, 3))
        kafka.brokers[1].start()
        kafka.until_isr("t", BROKERS)
        kafka.controllers[leader].launch()
        # Controlled shutdown: it leaves the ISRs before it stops.
        kafka.brokers[2].stop()
        kafka.until_isr("t", (1, 3))
        assert {each.leader for each in kafka.partitions("t")} <= {1, 3}
        kafka.brokers[2].start()
        kafka.until_isr("t", BROKERS)
    assert writer.failed == []
    found = read_all(kafka.bootstrap, "t", 3)
    assert sorted(found) == sorted(writer.written), "lost or doubled"
    assert len(found) > 100


def test_kafka_reassign_partitions(kafka: Kafka) -> None:
    def replicas(topic: str, index: int = 0) -> list[int]:
        return kafka.partitions(topic)[index].replicas

    def listed() -> str:
        return kafka.tools("reassign-partitions", "--bootstrap-server", kafka.bootstrap, "--list").stdout

    kafka.create("moving", 2, 2)
    with Writer(kafka.bootstrap, "moving") as writer:
        # Increase, decrease, move, reorder. The tool waits for the end with --verify.
        for wanted in ([1, 2, 3], [3, 1], [2, 3], [3, 2], [1]):
            target = {"moving-0": wanted, "moving-1": wanted[::-1]}
            assert "Successfully started" in kafka.reassign("--execute", replicas=target)
            wait_until(lambda: "is completed" in kafka.reassign("--verify", replicas=target), bound_s=BOUND_S)  # noqa: B023
            # The controller whose log is read may lag behind the active one.
            wait_until(lambda: [replicas("moving"), replicas("moving", 1)] == [wanted, wanted[::-1]], bound_s=BOUND_S)  # noqa: B023
            kafka.until_isr("moving", wanted)
        assert "No partition reassignments found." in listed()
        # KIP-860: the replication factor must not change.
        grown = {"moving-0": [1, 2]}
        refused = kafka.reassign("--execute", "--disallow-replication-factor-change", replicas=grown, check=False)
        assert "The replication factor would change from 1 to 2." in refused
        assert replicas("moving") == [1]
        kafka.reassign("--execute", replicas={"moving-0": [1, 2], "moving-1": [1, 2]})
        kafka.until_isr("moving", [1, 2])

    assert writer.failed == []
    assert sorted(read_all(kafka.bootstrap, "moving", 2)) == sorted(writer.written), "lost or doubled"


def test_a_reassignment_that_is_listed_cancelled_and_changed(kafka: Kafka) -> None:
    """A throttle keeps it running: one fetch is not throttled, but there is more to copy than it returns."""
    kafka.create("big", 2, 2)
    kafka.reassign("--execute", replicas={"big-0": [1, 2], "big-1": [1, 2]})
    kafka.until_isr("big", [1, 2])
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for at in range(400):
        producer.produce("big", os.urandom(50_000), partition=at % 2)
        producer.poll(0.005)
    assert producer.flush(BOUND_S) == 0
    slowly = "--execute", "--throttle", "1000"
    at_controller = "--bootstrap-controller", f"{HOST}:{kafka.controllers[CONTROLLERS[1]].port}"

    target = {"big-0": [2, 3], "big-1": [1, 2, 3]}
    kafka.reassign(*slowly, replicas=target)
    for at in (at_controller, ("--bootstrap-server", kafka.bootstrap)):
        shown = kafka.tools("reassign-partitions", *at, "--list").stdout
        assert "big-0: replicas: 2,3,1. adding: 3. removing: 1." in shown
        assert "big-1: replicas: 1,2,3. adding: 3." in shown
    assert "there is an existing partition assignment" in kafka.reassign(*slowly, replicas=target, check=False)
    assert "Successfully cancelled" in kafka.reassign("--cancel", replicas=target)
    assert [each.replicas for each in kafka.partitions("big")] == [[2, 1], [1, 2]]
    assert "No partition reassignments found." in kafka.tools("reassign-partitions", *at_controller, "--list").stdout
    assert "None of the specified" in kafka.reassign("--cancel", replicas=target)
    assert not kafka.image.configs(ResourceType.TOPIC, "big"), "the throttle is removed with it"

    # Replace it before its end, and remove the replica that it adds; Kafka's controller would wait for that replica
    # forever.
    kafka.reassign(*slowly, replicas={"big-0": [2, 3]})
    kafka.reassign("--execute", "--additional", replicas={"big-0": [1, 2]})
    wait_until(lambda: kafka.partitions("big")[0].replicas == [1, 2], bound_s=BOUND_S)
    assert kafka.image.reassigning_partition_count == 0
    assert "99" in kafka.reassign("--execute", replicas={"big-0": [1, 99]}, check=False)


def test_klamm_topics_reassign(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    """klamm's own command, connected to Kafka's brokers."""

    def klamm(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["topics", *arguments, "--bootstrap", kafka.bootstrap]) == code
        said = capsys.readouterr()
        return said.out, said.err

    def replicas() -> list[list[int]]:
        return [each.replicas for each in kafka.partitions("own")]

    kafka.create("own", 2, 1)
    before = replicas()
    shown, _ = klamm("reassign", "own", "--replicas", "3", "--dry-run", "--json")
    assert [len(each["to"]) for each in json.loads(shown)] == [3, 3]
    assert replicas() == before
    klamm("reassign", "own", "--replicas", "3", "--wait")
    assert [sorted(each) for each in replicas()] == [[1, 2, 3], [1, 2, 3]]
    assert [sorted(each.isr) for each in kafka.partitions("own")] == [[1, 2, 3], [1, 2, 3]]
    klamm("reassign", "own", "-P", "1", "--to", "3,1", "--wait")
    assert replicas()[1] == [3, 1]
    klamm("reassign", "own", "--brokers", "1,2", "--replicas", "2", "--wait")
    assert [sorted(each) for each in replicas()] == [[1, 2], [1, 2]]
    assert "nothing to change" in "".join(klamm("reassign", "own", "--brokers", "1,2"))
    assert "no partition is being reassigned" in "".join(klamm("reassignments"))
    assert "nothing to change" in "".join(klamm("reassign", "own", "--cancel"))
    assert "INVALID_REPLICA_ASSIGNMENT" in klamm("reassign", "own", "--to", "1,99", code=1)[1]
    assert "not running: broker 9" in klamm("reassign", "own", "--brokers", "1,9", code=1)[1]
    assert "has no partition 7" in klamm("reassign", "own", "-P", "7", "--to", "1", code=1)[1]
    assert "exclude each other" in klamm("reassign", "own", "--to", "1", "--cancel", code=1)[1]

    kafka.brokers[2].stop()
    kafka.until_isr("own", [1])
    shown, _ = klamm("describe", "--under-replicated", "--json")
    assert {"partition": 0, "leader": 1, "replicas": replicas()[0], "isr": [1]} in partitions_of(shown, "own")
    klamm("reassign", "own", "-P", "0", "--to", "2,3")
    kafka.brokers[2].start()
    wait_until(lambda: "no partition is being reassigned" in "".join(klamm("reassignments")), BOUND_S)
    assert replicas()[0] == [2, 3]
    wait_until(lambda: klamm("describe", "--under-replicated", "--json")[0].strip() == "[]", BOUND_S)


def partitions_of(described: str, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(each["partitions"] for each in json.loads(described) if each["name"] == topic)
    return found


def test_preferred_leaders(kafka: Kafka) -> None:
    kafka.create("led", 1, 3)
    first = kafka.partitions("led")[0].replicas
    wanted = first[::-1]
    kafka.reassign("--execute", replicas={"led-0": wanted})
    wait_until(lambda: kafka.partitions("led")[0].replicas == wanted, bound_s=BOUND_S)
    assert kafka.partitions("led")[0].leader == first[0]
    election = "--election-type", "preferred", "--topic", "led", "--partition", "0"
    kafka.tools("leader-election", "--bootstrap-server", kafka.bootstrap, *election)
    wait_until(lambda: kafka.partitions("led")[0].leader == wanted[0], bound_s=BOUND_S)
