"""A panic of the engine in every callback of a node's parts, one at a time, under load.

The callers are raft, the publisher of images, the engine, timers, connections, and requests to the controller. All
panics are injected into one cluster, so that a test detects damage from those before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import logging
import pkgutil
import re
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

import klamm.node
from klamm._engine.node import Engine
from klamm._engine.panics import panic_with
from klamm.broker import lifecycle
from klamm.client import peer
from klamm.controller import driver as controller_driver
from klamm.controller.controller import Controller
from klamm.controller.decisions import Decisions
from klamm.controller.operations import MODULES
from klamm.coordinator.groups import driver as groups_driver
from klamm.coordinator.runtime import driver as runtime_driver
from klamm.embedded.cluster import Cluster
from klamm.node import engine_events, publishing
from klamm.node.controller import broker_probes
from klamm.node.controller.broker_probes import BrokerProbes
from klamm.node.controller.isr_updates import IsrUpdates
from klamm.node.engine_events import EngineEvents
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.metadata import Metadata
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.raft.driver import peers
from klamm.raft.driver.peers import PeerTransport
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.ports import Listener
from tests.support.injection import INJECTED, InjectedError, injected, injected_into
from tests.support.loaded_cluster import CONFIG, TOPIC, LoadedCluster, commit_in_a_new_group
from tests.support.messages import codes
from tests.support.waiting import until, wait_until

CONTROLLERS: Final = {"one node": None, "a quorum": 3}


@pytest.fixture(scope="module", params=CONTROLLERS)
def loaded(request: pytest.FixtureRequest) -> Iterator[LoadedCluster]:
    with Cluster(controllers=CONTROLLERS[request.param], config=CONFIG) as cluster:
        loaded = LoadedCluster(cluster)
        yield loaded
        loaded.load.stop()


Reach = Callable[[LoadedCluster], object]
"""Triggers the call that shall fail."""


def assert_survives(
    loaded: LoadedCluster, raised: threading.Event, reach: Reach, caplog: pytest.LogCaptureFixture
) -> None:
    reach(loaded)
    wait_until(raised.is_set, bound_s=60)
    loaded.assert_serves()
    assert_logged_once(caplog)


def assert_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    wait_until(lambda: injected(caplog), "the fault is logged")
    [record] = injected(caplog)
    assert record.levelno >= logging.ERROR


# Callbacks from raft

RAFT: Final[dict[str, Reach]] = {
    "on_commit": LoadedCluster.create_topic,
    "on_leader": LoadedCluster.resign,
    "on_not_leader": LoadedCluster.resign,
    "write_snapshot": lambda loaded: [loaded.create_topic() for _ in range(10)],
    "load_snapshot": LoadedCluster.come_back,
    "on_snapshot_installed": LoadedCluster.come_back,
}


def test_every_callback_from_raft_is_listed() -> None:
    public = {name for name in vars(Listener) if not name.startswith("_")}
    assert public == RAFT.keys() | {"on_fault"}, "on_fault comes when the replica has stopped"


# A single-node quorum fetches no snapshot. These have a test of their own: pytest starts a cluster for each test if one
# parametrization contains both `loaded` and `name`.
OF_REPLICATION = [name for name, reach in RAFT.items() if reach is LoadedCluster.come_back]


@pytest.mark.parametrize("name", [name for name in RAFT if name not in OF_REPLICATION])
def test_a_callback_from_raft(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with injected_into(vars(Metadata)[name]) as raised:
        assert_survives(loaded, raised, RAFT[name], caplog)


@pytest.mark.parametrize("loaded", ["a quorum"], indirect=True)
@pytest.mark.parametrize("name", OF_REPLICATION)
def test_a_callback_of_replication(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with injected_into(vars(Metadata)[name]) as raised:
        assert_survives(loaded, raised, RAFT[name], caplog)


@pytest.mark.parametrize("loaded", ["a quorum"], indirect=True)
@pytest.mark.parametrize("function", [RaftRequests.handle, PeerTransport.send], ids=lambda it: it.__qualname__)
def test_an_exchange_between_replicas(
    loaded: LoadedCluster, function: FunctionType, caplog: pytest.LogCaptureFixture
) -> None:
    with injected_into(function) as raised:
        assert_survives(loaded, raised, LoadedCluster.resign, caplog)


# The active controller. It resigns, because its state in memory may differ from the log.

DECIDED_BY: Final = {
    ApiKey.BROKER_REGISTRATION: "register_broker",
    ApiKey.BROKER_HEARTBEAT: "heartbeat",
    ApiKey.CONTROLLER_REGISTRATION: "register_controller",
}
OPERATIONS: Final = {DECIDED_BY.get(key, key.name.lower()): key for keys in MODULES.values() for key in keys}
"""The operations by the method that decides them."""


def upgrade_kraft_version(loaded: LoadedCluster) -> None:
    """It succeeds once the directory ids of all voters are known."""
    update = {"feature": "kraft.version", "max_version_level": 1, "upgrade_type": 1}
    asked = {"timeout_ms": 30_000, "feature_updates": [update]}
    answers = []

    def is_decided() -> bool:
        answers.append(loaded.ask_controller(ApiKey.UPDATE_FEATURES, asked))
        return answers[-1].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)

    wait_until(is_decided, lambda: answers[-1], bound_s=60)


CONTROLLER: Final[dict[str, Reach]] = {
    "on_leader": LoadedCluster.resign,
    "on_not_leader": LoadedCluster.resign,
    "applied": LoadedCluster.create_topic,
    "replay": LoadedCluster.create_topic,
    "on_quorum": lambda loaded: loaded.ask_controller(ApiKey.UPDATE_FEATURES),
    "on_kraft_version": upgrade_kraft_version,
    "on_request": LoadedCluster.create_topic,
    "on_timer": lambda loaded: None,
}


def test_every_call_of_the_controller_is_listed() -> None:
    public = {name for name, found in vars(Controller).items() if inspect.isfunction(found) and name[0] != "_"}
    assert public == CONTROLLER.keys() | {"on_broker_crashed"}, "test_a_crashed_broker_is_fenced_after_a_fault"


@pytest.mark.parametrize("name", CONTROLLER)
def test_a_call_of_the_controller(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with injected_into(vars(Controller)[name]) as raised:
        assert_survives(loaded, raised, CONTROLLER[name], caplog)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_the_controller(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with injected_into(vars(Decisions)[name]) as raised:
        answer = loaded.ask_controller(OPERATIONS[name])
        assert raised.is_set()
        loaded.assert_serves()
    # The broker's own heartbeat may hit the fault before the test's, whose controller has then resigned.
    refused = {ErrorCode.NOT_CONTROLLER} if name == "heartbeat" else set()
    assert {ErrorCode.UNKNOWN_SERVER_ERROR, *refused} & set(codes(answer))
    assert_logged_once(caplog)


# Followers of the committed image

FOLLOWERS = {
    "engine",
    "dynamic configs",
    "features",
    "directory assignments",
    "broker state",
    "group coordinator",
    "transaction coordinator",
    "share coordinator",
    "broker probes",
    "broker registration",
    "controller registration",
}


def test_every_follower_of_the_image_is_listed(loaded: LoadedCluster) -> None:
    # A separate controller registers shortly after its start.
    wait_until(lambda: {name for node in loaded.nodes for name in node._publisher.followers} == FOLLOWERS)


@pytest.mark.parametrize("name", sorted(FOLLOWERS))
def test_a_follower_of_the_image(
    loaded: LoadedCluster, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    assert_survives(loaded, raised, LoadedCluster.create_topic, caplog)


# Events on the node's loop

EVENTS: Final[dict[str, Reach]] = {
    "RequestEvent": LoadedCluster.create_topic,
    "CommitEvent": lambda loaded: None,
    "AckedEvent": lambda loaded: None,
    "ShareStateEvent": lambda loaded: None,
    "AutoCreateEvent": LoadedCluster.auto_create_topic,
    "ConnectionClosedEvent": LoadedCluster.create_topic,
}


def test_every_kind_of_event_is_listed() -> None:
    kinds = set(re.findall(r"case (\w+)\(", inspect.getsource(EngineEvents._on_event)))
    others = {"DirFailedEvent", "DirectoriesChangedEvent", "IsrChangedEvent", "LogEvent", "VerifyEvent"}
    assert kinds == EVENTS.keys() | others


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_an_event_of_the_engine(loaded: LoadedCluster, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with injected_into(EngineEvents._on_event, lambda events, event: type(event).__name__ == kind) as raised:
        assert_survives(loaded, raised, EVENTS[kind], caplog)


# Calls of the engine

CALLS: Final[dict[str, Reach]] = {
    "answer": LoadedCluster.create_topic,
    "append": lambda loaded: None,
    "drain": LoadedCluster.create_topic,
    "publish": LoadedCluster.create_topic,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_engine(
    loaded: LoadedCluster, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call, raised = getattr(Engine, name), threading.Event()

    def panic_once(engine: Engine, *args: Any, **kwargs: Any) -> Any:
        if not raised.is_set():
            raised.set()
            panic_with(INJECTED)
        return call(engine, *args, **kwargs)

    monkeypatch.setattr(Engine, name, panic_once)
    assert_survives(loaded, raised, CALLS[name], caplog)


@pytest.mark.parametrize("when_lost", [False, True], ids=["released", "not even released"])
def test_an_event_that_fails_does_not_lose_those_after_it(loaded: LoadedCluster, *, when_lost: bool) -> None:
    """The engine delivers many events at once."""
    failing, taken = object(), list[object]()

    def take(events: EngineEvents, event: object) -> None:
        if event is failing:
            raise InjectedError(INJECTED)
        taken.append(event)

    class Drained:
        """Replaces the engine."""

        def drain(self, count: int) -> list[object]:
            return [1, failing, 2]

    async def drain() -> None:
        # A turn that has begun with other events would go on with these later.
        await until(lambda: loaded.nodes[0]._events._next_turn is None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_events, "TURN_NS", 60 * 10**9)
            patch.setattr(loaded.nodes[0]._events, "_engine", Drained())
            patch.setattr(EngineEvents, "_on_event", take)
            if when_lost:
                patch.setattr(EngineEvents, "_release", take)
            loaded.nodes[0]._events.on_readable()

    loaded.cluster.run(drain())
    assert taken == [1, 2]


def test_a_turn_of_the_loop_ends_while_events_are_left(loaded: LoadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise timers and responses would wait until clients send nothing more."""
    taken, turns = list[object](), list[int]()

    class Full:
        """Replaces the engine; it has more events than a turn can process."""

        left = 3 * engine_events.EVENTS_AT_ONCE + 1

        def drain(self, count: int) -> list[object]:
            drained = list(range(self.left, max(self.left - count, 0), -1))
            self.left -= len(drained)
            return list(drained)

    events, on_event, count = loaded.nodes[0]._events, EngineEvents._on_event, Full.left

    def take(of: EngineEvents, event: Any) -> None:
        # One that the engine had returned before is processed as well.
        taken.append(event) if isinstance(event, int) else on_event(of, event)

    async def until_all_are_taken() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(events, "_engine", Full())
            patch.setattr(EngineEvents, "_on_event", take)
            while len(taken) < count:
                events.on_readable()
                turns.append(len(taken))
                await asyncio.sleep(0)

    monkeypatch.setattr(engine_events, "TURN_NS", 0)
    loaded.cluster.run(until_all_are_taken())
    assert taken == list(range(count, 0, -1))
    assert {after - before for before, after in pairwise(turns)} <= {0, 1}, "each event ended a turn"


# All other callbacks: the functions `on_…` of the parts of a node

REACHES: Final[tuple[Reach, ...]] = (
    lambda loaded: None,
    LoadedCluster.create_topic,
    LoadedCluster.resign,
    LoadedCluster.delete_groups_topic,
    LoadedCluster.cordon_for_a_moment,
    LoadedCluster.pause,
)
REACHES_OF_A_QUORUM: Final[tuple[Reach, ...]] = (
    *REACHES,
    LoadedCluster.come_back,
    LoadedCluster.come_back_alone,
)


ROUNDS: Final = 5


def modules() -> Iterator[ModuleType]:
    """The modules of the node, those it calls, and those of connections between nodes."""
    yield from (lifecycle, controller_driver, groups_driver, runtime_driver, peers, peer)
    for found in pkgutil.walk_packages(klamm.node.__path__, "klamm.node."):
        yield importlib.import_module(found.name)


def callbacks() -> dict[str, FunctionType]:
    """The callbacks by qualified name."""
    classes = ((module, one) for module in modules() for one in vars(module).values() if inspect.isclass(one))
    own = (
        one for module, one in classes if one.__module__ == module.__name__ and not getattr(one, "_is_protocol", False)
    )
    functions = (found for one in own for found in vars(one).values() if inspect.isfunction(found))
    return {found.__qualname__: found for found in functions if re.match("_?on_[a-z]", found.__name__)}


BETWEEN_NODES: Final = frozenset(
    {
        "BrokerPart._on_controller_versions",
        "Metadata._on_peer_crashed",
        "Metadata._on_peer_refused",
    }
    | {
        name
        for name, found in callbacks().items()
        if found.__module__ in (peers.__name__, peer.__name__, broker_probes.__name__)
    }
)
"""Callbacks that a single node does not reach."""
ON_LOG_DIR_FAILED: Final = tuple(name for name in callbacks() if name.endswith("on_log_dir_failed"))
NOT_UNDER_LOAD: Final[dict[str, str]] = {
    "Metadata.on_fault": "the replica has stopped, and the node stops",
    "Node._on_fault": "the node stops",
    "BrokerLifecycle.on_start": "a broker that cannot begin to register does not start",
    "BrokerLifecycle.on_registered": "before the broker serves: unit/node/test_faults.py",
    "BrokerLifecycle.on_ready": "before the broker serves",
    "BrokerLifecycle.on_failure": "comes after a fault: unit/node/test_faults.py",
    "BrokerLifecycle.on_shutdown_asked": "the broker stops",
    "BrokerLifecycle.on_give_up": "the broker stops",
    "ForwardedRequest._on_outcome": "guards what it calls: unit/node/requests/test_forwarding.py",
    "ControllerDriver.on_broker_crashed": "test_a_crashed_broker_is_fenced_after_a_fault",
    "BrokerProbes._on_registration": "test_a_crashed_broker_is_fenced_after_a_fault",
    **dict.fromkeys(ON_LOG_DIR_FAILED, "test_a_failed_log_directory_is_reported_after_a_fault"),
    "EngineEvents._on_lost_event": "comes after a fault: test_an_event_that_fails_does_not_lose_those_after_it",
    "TopicCoordinator._on_published": "each coordinator has its own",
    "OtherBrokers.on_published": "brokers that leave and return: integration/test_exactly_once.py",
    "Persister._on_outcome": "the coordinators of other brokers: unit/node/test_persister.py",
    "Verification._on_outcome": "the coordinators of other brokers: unit/node/test_verification.py",
    "Verification._on_codes": "librdkafka adds partitions itself: unit/node/test_verification.py",
    "CoordinatorRuntime._on_load_failed": "comes after a fault: unit/coordinator/runtime/test_faults.py",
}
"""Callbacks that the load does not reach, and why."""

CALLBACKS: Final = callbacks()
REACHED = sorted(CALLBACKS.keys() - NOT_UNDER_LOAD.keys() - {f"Metadata.{name}" for name in RAFT})


def test_callbacks_that_the_load_does_not_reach_exist() -> None:
    assert NOT_UNDER_LOAD.keys() | BETWEEN_NODES <= CALLBACKS.keys()


@pytest.mark.parametrize("name", [name for name in REACHED if name not in BETWEEN_NODES])
def test_a_callback(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert_survives_in(name, loaded, caplog)


@pytest.mark.parametrize("loaded", ["a quorum"], indirect=True)
@pytest.mark.parametrize("name", [name for name in REACHED if name in BETWEEN_NODES])
def test_a_callback_between_nodes(loaded: LoadedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert_survives_in(name, loaded, caplog)


def assert_survives_in(name: str, loaded: LoadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    def reach(loaded: LoadedCluster) -> None:
        # Several rounds: a pause is not detected while the heartbeat that it interrupts is unanswered.
        for _ in range(ROUNDS):
            for reach in REACHES if not loaded.cluster.controllers else REACHES_OF_A_QUORUM:
                reach(loaded)
                if raised.wait(0.5):
                    return
        pytest.fail(f"nothing in REACHES calls {name}: add an operation that does, or the reason to NOT_UNDER_LOAD")

    with injected_into(CALLBACKS[name]) as raised:
        assert_survives(loaded, raised, reach, caplog)


@pytest.mark.parametrize("name", ON_LOG_DIR_FAILED)
def test_a_failed_log_directory_is_reported_after_a_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise clients would be sent to leaders in that directory forever."""
    monkeypatch.setattr(engine_events, "LOST_EVENT_PAUSE_MS", 10)
    folders = [tmp_path / "one", tmp_path / "two"]
    with Cluster(config={"log.dirs": ",".join(map(str, folders))}) as cluster:
        cluster.create_topic("t", 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for partition in range(2):
            producer.produce("t", b"x", partition=partition)
        assert producer.flush(60) == 0
        [lost] = folders[1].glob("t-*")
        with injected_into(CALLBACKS[name]) as raised:
            folders[1].rename(tmp_path / "away")
            folders[1].touch()
            producer.produce("t", b"x", partition=int(lost.name.rpartition("-")[2]))
            wait_until(lambda: is_leaderless(cluster, lost.name))
            assert raised.is_set()
        assert_logged_once(caplog)
        producer.purge()


CRASH: Final[dict[str, tuple[FunctionType, Callable[..., bool]]]] = {
    "the end of a session": (Controller.on_broker_crashed, lambda *_: True),
    "the next registration": (BrokerProbes._on_registration, lambda *_: True),
    "an ISR": (EngineEvents._on_event, lambda events, event: type(event).__name__ == "IsrChangedEvent"),
    "an answer to proposed ISRs": (IsrUpdates.send, lambda *_: True),
}


@pytest.mark.parametrize("name", CRASH)
def test_a_crashed_broker_is_fenced_after_a_fault(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """No session expires within the test. The broker is in the ISR again after its restart."""
    function, when = CRASH[name]
    config = CONFIG | {"broker.session.timeout.ms": "600000"}
    with Cluster(brokers=3, config=config) as cluster, injected_into(function, when) as raised:
        cluster.create_topic(TOPIC, replication_factor=3)
        killed = cluster.brokers[2]
        wait_until(lambda: len(state_of(cluster).isr) == 3)
        killed.kill()
        wait_until(lambda: killed.id not in state_of(cluster).isr)
        killed.start()
        wait_until(lambda: len(state_of(cluster).isr) == 3)
        assert raised.is_set()
    assert_logged_once(caplog)


def state_of(cluster: Cluster) -> Any:
    """The partition of the topic."""
    image = cluster._image()
    topic_id = image.topic_id(TOPIC)
    assert topic_id is not None
    return image.partition(topic_id, 0)


def is_leaderless(cluster: Cluster, partition: str) -> bool:
    topic, _, index = partition.rpartition("-")
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, 30).topics[topic]
    return found.partitions[int(index)].leader == -1


def test_groups_join_while_their_topic_is_deleted_repeatedly(
    loaded: LoadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """This once stopped the node, because a group that was being created was marked Dead twice."""
    joining = [threading.Thread(target=join, args=(loaded.cluster.bootstrap_servers,)) for _ in range(8)]
    for thread in joining:
        thread.start()
    for _ in range(5):
        wait_until(lambda: GROUPS_TOPIC in loaded.cluster.topics(), bound_s=60)
        loaded.delete_groups_topic()
    loaded.assert_serves()
    for thread in joining:
        thread.join(60)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def join(bootstrap: str) -> None:
    for _ in range(5):
        with contextlib.suppress(KafkaException):
            commit_in_a_new_group(bootstrap)
