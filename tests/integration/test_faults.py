"""An exception in every callback from raft and from the publisher of images, one at a time, under load.

Each is injected into a cluster that goes on from test to test: whatever one of them broke, the next would find.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from klamm.controller.controller import Controller as ActiveControllerCore
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.embedded.cluster import Cluster
from klamm.node import node as node_module
from klamm.node import publishing
from klamm.node.broker_part import BrokerPart
from klamm.node.groups import GROUPS_TOPIC, NodeGroups
from klamm.node.metadata import Metadata
from klamm.node.node import Node
from klamm.node.requests.dispatch import Dispatcher
from klamm.raft.driver.peers import PeerTransport
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.ports import Listener
from tests.support.waiting import wait_until

INJECTED = "injected for the test"
NUMBERS = itertools.count()
TOPIC = "load"
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    # A snapshot after every few topics, and no log before it: a replica that was away needs one.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}


class InjectedError(Exception):
    """What a test injects."""


class Load:
    """A producer that waits for acknowledgements, and groups that come, read, commit and go, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged = self.commits = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._commit)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
        while not self._is_over.is_set():
            producer.produce(TOPIC, b"x" * 100, on_delivery=self._note)
            producer.flush(10)

    def _note(self, error: object, message: object) -> None:
        self.acknowledged += error is None

    def _commit(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaException):
                commit_in_a_new_group(self.bootstrap)
                self.commits += 1

    def assert_goes_on(self) -> None:
        """More of everything is done."""
        acknowledged, commits = self.acknowledged, self.commits
        wait_until(lambda: self.acknowledged > acknowledged + 10, 60)
        wait_until(lambda: self.commits > commits + 1, 60)

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)


def commit_in_a_new_group(bootstrap: str) -> None:
    """A new group joins, reads a record, commits its offset and leaves. Raises KafkaException."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"g{next(NUMBERS)}", "log_level": 0}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([TOPIC])
        for _ in range(300):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
                return
    finally:
        consumer.close()


class House:
    """A cluster under load, and what its tests do to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC)
        self.load = Load(cluster.bootstrap_servers)
        self.load.assert_goes_on()

    @property
    def nodes(self) -> list[Node]:
        return [member.node for member in self.cluster._members.all]

    def create_topic(self) -> None:
        """By a client; where the controller changes meanwhile, the client asks again."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

        def is_created() -> bool:
            name = f"t{next(NUMBERS)}"
            try:
                admin.create_topics([NewTopic(name, 5, 1)])[name].result(30)
            except KafkaException:
                return False
            return True

        wait_until(is_created, 60)

    def resign(self) -> None:
        """The active controller leads no more."""

        async def resign() -> None:
            for node in self.nodes:
                if node.metadata.is_active.is_set():
                    node.metadata.raft.resign(node.metadata.raft.epoch)

        self.cluster.run(resign())
        wait_until(lambda: any(node.metadata.is_active.is_set() for node in self.nodes))

    def come_back(self) -> None:
        """A controller is away for so long that it comes back by a snapshot."""
        away = next(one for one in self.cluster.controllers if not one.is_active)
        away.stop()
        for _ in range(30):
            self.create_topic()
        away.start()

    def delete_groups_topic(self) -> None:
        """What new groups join by goes away while they do, and comes back."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

        def is_deleted() -> bool:
            try:
                admin.delete_topics([GROUPS_TOPIC])[GROUPS_TOPIC].result(30)
            except KafkaException as error:  # it is being made, or the connection met what a test injected
                return error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            return True

        wait_until(is_deleted, 60)

    def auto_create(self) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        producer.produce(f"auto{next(NUMBERS)}", b"x")
        assert producer.flush(30) == 0

    def assert_serves(self) -> None:
        """Every node runs, and each kind of request is answered."""
        assert not any(node.failed.done() for node in self.nodes)
        self.create_topic()
        self.load.assert_goes_on()


CONTROLLERS = {"one node": None, "a quorum": 3}


@pytest.fixture(scope="module", params=CONTROLLERS)
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    with klamm.Cluster(controllers=CONTROLLERS[request.param], config=CONFIG) as cluster:
        house = House(cluster)
        yield house
        house.load.stop()


def inject(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, when: Callable[..., bool]) -> threading.Event:
    """Let the next call raise for which `when` says so; the event is set when it has."""
    found, raised = vars(owner)[name], threading.Event()

    def broken(*args: Any, **kwargs: Any) -> Any:
        if not raised.is_set() and when(*args):
            raised.set()
            raise InjectedError(INJECTED)
        return found(*args, **kwargs)

    monkeypatch.setattr(owner, name, broken)
    return raised


def injected(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The log records that have the injected exception as their cause."""
    return [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], InjectedError)]


def assert_survives(
    house: House, raised: threading.Event, reach: Callable[[House], None], caplog: pytest.LogCaptureFixture
) -> None:
    reach(house)
    wait_until(raised.is_set, 60)
    house.assert_serves()
    [record] = injected(caplog)
    assert record.levelno >= logging.ERROR


# Callbacks from raft

RAFT: dict[str, Callable[[House], None]] = {
    "on_commit": House.create_topic,
    "on_leader": House.resign,
    "on_not_leader": House.resign,
    "write_snapshot": lambda house: [house.create_topic() for _ in range(10)] and None,
    "load_snapshot": House.come_back,
    "on_snapshot_installed": House.come_back,
}


def test_every_callback_from_raft_is_among_them() -> None:
    public = {name for name in vars(Listener) if not name.startswith("_")}
    assert public == RAFT.keys() | {"on_fault"}, "on_fault comes when the replica has stopped"


# Who is alone in its quorum fetches no snapshot, and asks no other replica.
IN_WHICH = [(house, name) for house in CONTROLLERS for name in RAFT]
IN_WHICH = [(house, name) for house, name in IN_WHICH if house == "a quorum" or RAFT[name] is not House.come_back]


@pytest.mark.parametrize(("house", "name"), IN_WHICH, indirect=["house"])
def test_a_callback_from_raft(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raised = inject(monkeypatch, Metadata, name, lambda *_: True)
    assert_survives(house, raised, RAFT[name], caplog)


@pytest.mark.parametrize("house", ["a quorum"], indirect=True)
@pytest.mark.parametrize(("owner", "name"), [(RaftRequests, "handle"), (PeerTransport, "send")])
def test_an_exchange_between_replicas(
    house: House, owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raised = inject(monkeypatch, owner, name, lambda *_: True)
    assert_survives(house, raised, House.resign, caplog)


CONTROLLER: dict[str, Callable[[House], None]] = {
    "activate": House.resign,
    "deactivate": House.resign,
    "replay": House.create_topic,
    "on_create_topics": House.create_topic,
    "on_broker_heartbeat": House.create_topic,
}


@pytest.mark.parametrize("name", sorted(CONTROLLER))
def test_a_call_of_the_controller(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its epoch is resigned, because what is in memory may not be what is in the log; the next one decides."""
    raised = inject(monkeypatch, ActiveControllerCore, name, lambda *_: True)
    assert_survives(house, raised, CONTROLLER[name], caplog)


# Followers of the committed image

FOLLOWERS = {
    "engine",
    "dynamic configs",
    "features",
    "directory assignments",
    "broker state",
    "group coordinator",
    "broker registration",
    "controller registration",
}


def test_every_follower_of_the_image_is_among_them(house: House) -> None:
    # A controller alone registers a moment after its start.
    wait_until(lambda: {name for node in house.nodes for name in node._publisher.followers} == FOLLOWERS)


@pytest.mark.parametrize("name", sorted(FOLLOWERS))
def test_a_follower_of_the_image(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call, raised = publishing._Follower.call, threading.Event()

    def broken(follower: Any, delta: Any) -> None:
        take = follower.take

        def fail(*_: Any) -> None:
            raised.set()
            raise InjectedError(INJECTED)

        if follower.name == name and not raised.is_set():
            follower.take = fail
        call(follower, delta)
        follower.take = take

    monkeypatch.setattr(publishing._Follower, "call", broken)
    assert_survives(house, raised, House.create_topic, caplog)


# What else runs on the node's loop

EVENTS: dict[str, Callable[[House], None]] = {
    "RequestEvent": House.create_topic,
    "CommitEvent": lambda house: None,
    "AckedEvent": lambda house: None,
    "AutoCreateEvent": House.auto_create,
}


def test_every_kind_of_event_is_among_them() -> None:
    kinds = set(re.findall(r"case (\w+)\(", inspect.getsource(Node._on_event)))
    assert kinds == EVENTS.keys() | {"DirFailedEvent", "LogEvent"}


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_an_event_of_the_engine(
    house: House, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raised = inject(monkeypatch, Node, "_on_event", lambda node, event: type(event).__name__ == kind)
    assert_survives(house, raised, EVENTS[kind], caplog)


def test_a_log_directory_whose_failure_could_not_be_taken_in_is_looked_at_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class DirFailed:
        """Only the engine makes its events: this one stands for its DirFailedEvent."""

        directory_id: bytes

    taken: list[bytes] = []
    monkeypatch.setattr(node_module, "DirFailedEvent", DirFailed)
    monkeypatch.setattr(node_module, "LOST_EVENT_PAUSE_S", 0.01)
    monkeypatch.setattr(Node, "_on_log_dir_failed", lambda node, directory_id: taken.append(directory_id))

    async def lose() -> None:
        house.nodes[0]._on_lost_event(DirFailed(b"d" * 16))  # type: ignore[arg-type]

    house.cluster.run(lose())
    wait_until(lambda: taken == [b"d" * 16])


OTHERS: list[tuple[type, str]] = [
    (Dispatcher, "dispatch"),
    (BrokerPart, "_create"),
    (NodeGroups, "_follow"),
    (GroupCoordinator, "on_elected"),
    (GroupCoordinator, "on_resigned"),
    (GroupCoordinator, "on_topics_deleted"),
]


@pytest.mark.parametrize(("owner", "name"), OTHERS, ids=lambda it: it if isinstance(it, str) else it.__name__)
def test_a_call_while_the_topic_of_the_groups_goes_and_comes_back(
    house: House, owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raised = inject(monkeypatch, owner, name, lambda *_: True)
    assert_survives(house, raised, House.delete_groups_topic, caplog)


def test_groups_join_while_their_topic_is_deleted_again_and_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Which stopped the node: a group that was being made was marked Dead twice."""
    joining = [threading.Thread(target=join, args=(house.cluster.bootstrap_servers,)) for _ in range(8)]
    for thread in joining:
        thread.start()
    for _ in range(5):
        wait_until(lambda: GROUPS_TOPIC in house.cluster.topics(), 60)
        house.delete_groups_topic()
    house.assert_serves()
    for thread in joining:
        thread.join(60)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def join(bootstrap: str) -> None:
    for _ in range(5):
        with contextlib.suppress(KafkaException):
            commit_in_a_new_group(bootstrap)
