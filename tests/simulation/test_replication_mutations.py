"""Remove a guard of replication; the simulator of brokers must detect it.

With all guards, the same scenarios have the outcome in their files (`tests/scenarios`), and the same seeds pass
(`test_replication`).
"""

import inspect
import random
from pathlib import Path

import pytest
from tests.simulation.appended_digits import appended_in_an_earlier_epoch, refused_in_flight
from tests.simulation.broker_mutations import cleaning, control, coordinators, groups, migrations, shares, streams
from tests.simulation.broker_mutations.guards import (
    DIRECTED,
    FAULTS,
    NOTICED_BY,
    OF_COORDINATORS,
    QUORUM_FAULTS,
    RANDOM_ONLY,
    SCENARIOS,
    SEEDS,
)
from tests.unit.coordinator.share.harness import Room

from klamm._engine.records import encode_batch
from klamm._engine.simulation import SimulatedBroker
from klamm.coordinator.transactions.markers import MarkerQueues
from klamm.coordinator.transactions.shard import WriteMarkers
from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.brokers.run import SETTINGS, play
from klamm.testing.simulator.brokers.scripted import BrokerCommands
from klamm.testing.simulator.brokers.world import BrokerWorld, ClusterPlan
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.run import SimulationFailedError
from klamm.testing.simulator.scenario import play_file

FOLDER = Path(__file__).parents[1] / "scenarios" / "replication"
pytestmark = pytest.mark.timeout(900)  # a few seconds on an idle machine


def name_of(mutation):
    return mutation if isinstance(mutation, str) else mutation.__name__


def begin(mutation, patch):
    """Remove the guard; returns those that brokers lack."""
    if isinstance(mutation, str):
        return mutation
    mutation(patch)
    return None


@pytest.mark.parametrize("mutation", SCENARIOS, ids=name_of)
def test_without_it_a_scenario_differs(mutation, monkeypatch):
    path = FOLDER / f"{SCENARIOS[mutation]}.txt"
    with BrokerCommands(begin(mutation, monkeypatch)) as commands:
        try:
            expected, actual = play_file(path, rewrite=False, run=commands.run)
        except InvariantViolatedError as error:
            print(f"noticed with {error}")
            return
    assert actual != expected, f"{path.stem} without {name_of(mutation)} changes no outcome"


@pytest.mark.parametrize("mutation", FAULTS, ids=name_of)
def test_without_it_a_seed_fails(mutation, monkeypatch):
    """Random seeds find what the scenarios lead to."""
    without = begin(mutation, monkeypatch)
    play_until_noticed(mutation, directed=FAULTS[mutation], without=without)


@pytest.mark.parametrize("mutation", QUORUM_FAULTS, ids=name_of)
def test_without_it_a_seed_with_three_controllers_fails(mutation, monkeypatch):
    without = begin(mutation, monkeypatch)
    play_until_noticed(mutation, directed=QUORUM_FAULTS[mutation], without=without, quorum=True)


def play_until_noticed(mutation, **how):
    for seed in sorted(SEEDS, key=lambda seed: seed != NOTICED_BY.get(mutation)):
        try:
            play(seed, settings={"klamm.flush.before.ack": "all"}, **how)
        except SimulationFailedError as error:
            print(f"noticed with {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{len(SEEDS)} seeds without {name_of(mutation)} being noticed")


@pytest.mark.parametrize("without", [None, "verified-transactions"])
def test_a_batch_that_a_marker_overtakes_begins_no_transaction(without, tmp_path):
    """The transaction ends after the coordinator has verified the batch and before it is appended (KIP-890)."""
    plan = ClusterPlan(1, 1, 1, 1, False, SETTINGS, {"metadata.version": 30}, without=without)
    world = BrokerWorld(random.Random(1), BrokerFaults(), tmp_path, plan)
    world.begin()
    (key,), broker = world.keys, world.brokers[1]
    world.run(world.now_us + 1_000_000)
    engine, now_ms = broker.engine, broker.now_ms
    batch = encode_batch(
        [(now_ms, None, b"late")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    assert engine.begin_verification(key, (7, 0, 0), False, 1001, now_ms) == (ErrorCode.NONE, True)
    assert engine.append_marker(key, (7, 0, False, 0, 0), True, None, 1002, now_ms)[0] == ErrorCode.NONE
    code, _ = engine.produce(key, batch, -1, 1001, now_ms)
    assert code == (ErrorCode.INVALID_TXN_STATE if without is None else ErrorCode.NONE)
    engine.kill()


@pytest.mark.parametrize(
    "mutation",
    [None, coordinators.a_marker_overtakes_one_of_an_earlier_completion],
    ids=lambda mutation: mutation and name_of(mutation),
)
def test_a_late_marker_ends_no_later_transaction(mutation, monkeypatch, tmp_path):
    """The coordinator loads its shard again in the same leader epoch, before transaction.version 2."""
    if mutation is not None:
        mutation(monkeypatch)
    world = BrokerWorld(
        random.Random(1), BrokerFaults(), tmp_path, ClusterPlan(1, 1, 1, 1, False, SETTINGS, {"metadata.version": 30})
    )
    world.begin()
    (key,), broker = world.keys, world.brokers[1]
    world.run(world.now_us + 1_000_000)
    engine, now_ms = broker.engine, broker.now_ms
    queues, place = MarkerQueues(lambda place: 1), ("t", 0)

    def begins(sequence):
        code, is_asked = engine.begin_verification(key, (7, 0, sequence), False, 1001, now_ms)
        assert code == ErrorCode.NONE
        return is_asked

    def produce(sequence):
        batch = encode_batch(
            [(now_ms, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        assert begins(sequence)
        assert engine.produce(key, batch, -1, 1001, now_ms)[0] == ErrorCode.NONE

    def deliver(request):
        for marker in request.markers:
            fields = marker.producer_id, marker.epoch, marker.is_commit, marker.coordinator_epoch, marker.version
            assert engine.append_marker(key, fields, True, None, 1002, now_ms)[0] == ErrorCode.NONE
        queues.on_answer(request, {7: {place: ErrorCode.NONE}})

    produce(0)
    queues.add(0, 5, WriteMarkers("x", 1, 7, 0, True, frozenset({place}), 0))
    [late], _ = queues.take_requests()
    queues.add(0, 5, WriteMarkers("x", 1, 7, 0, True, frozenset({place}), 0))
    for request in queues.take_requests()[0]:
        deliver(request)
    is_next_begun = not len(queues)
    if is_next_begun:
        produce(1)
    deliver(late)
    if not is_next_begun:
        for request in queues.take_requests()[0]:
            deliver(request)
        produce(1)
    assert begins(2) is (mutation is not None), "the transaction is open"
    engine.kill()


EARLIER_EPOCH = {
    shares.an_initialization_of_an_earlier_epoch_counts: lambda room: room.initialize(1, start_offset=0),
    shares.a_write_of_an_earlier_state_epoch_counts: lambda room: room.write((9, 9, 2, 1), state_epoch=1),
}


@pytest.mark.parametrize("mutation", EARLIER_EPOCH, ids=name_of)
def test_a_late_request_of_an_earlier_state_epoch_changes_no_share_state(mutation, monkeypatch):
    """An operator has reset the group meanwhile (KIP-932), which no random run does."""
    for is_guarded in (True, False):
        room = Room()
        room.initialize(1)
        room.initialize(2, start_offset=5)
        before = room.state()
        if not is_guarded:
            mutation(monkeypatch)
        answer = EARLIER_EPOCH[mutation](room)
        assert (room.state() == before) is is_guarded
        assert (answer.error_code is ErrorCode.FENCED_STATE_EPOCH) is is_guarded


@pytest.mark.parametrize(
    "mutation",
    [
        None,
        "append-in-series",
        coordinators.a_failed_append_ends_no_series,
        coordinators.a_marker_belongs_to_the_following_series,
        coordinators.later_writes_stay_after_a_failed_one,
        coordinators.the_newest_write_is_appended_first,
    ],
    ids=lambda mutation: mutation and name_of(mutation),
)
def test_a_failed_append_is_rolled_back_with_those_that_build_on_it(mutation, monkeypatch, tmp_path):
    """Several appends of a shard are in flight, and the log refuses one of them: decision 75."""
    none, not_available = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
    answers = dict.fromkeys("1239", none) | {"4": ErrorCode.INVALID_PRODUCER_EPOCH}
    expected = answers | dict.fromkeys(".5678", not_available), ["1239", "1239"], 0
    without = begin(mutation, monkeypatch) if mutation is not None else None
    outcome = refused_in_flight(tmp_path, without)
    assert (outcome == expected) is (mutation is None), outcome


@pytest.mark.parametrize("without", [None, "append-in-epoch"])
def test_a_shard_of_an_earlier_epoch_appends_nothing(without, tmp_path):
    """It does not know what other leaders have appended since."""
    outcome = appended_in_an_earlier_epoch(tmp_path, without)
    expected = {"1": ErrorCode.NOT_LEADER_OR_FOLLOWER}, ""
    assert (outcome == expected) is (without is None), outcome


def mutations_of(*modules):
    return {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def test_every_rule_of_replication_has_a_scenario():
    rules = mutations_of(cleaning, control) | {*SimulatedBroker.guards()} - OF_COORDINATORS
    assert rules - SCENARIOS.keys() == RANDOM_ONLY


def test_every_mutation_is_played():
    written = mutations_of(cleaning, control, coordinators, groups, migrations, shares, streams)
    unplayed = {*written, *SimulatedBroker.guards()} - SCENARIOS.keys() - FAULTS.keys() - DIRECTED
    assert not unplayed, (
        f"add to SCENARIOS or FAULTS of tests/simulation/broker_mutations/guards.py: {sorted(map(name_of, unplayed))}"
    )
