"""Operations on a running quorum: changes of voters with retries, moves to other ports, orderly stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.raft.events import KraftUpgradeRequested, ShutdownRequested
from klamm.raft.messages import Error
from klamm.testing.simulator import descriptions as words

if TYPE_CHECKING:
    from klamm.testing.simulator.envelope import Envelope
    from klamm.testing.simulator.network import Network
    from klamm.testing.simulator.operator import Operator
    from klamm.testing.simulator.simulated_replica import SimulatedReplica
    from klamm.testing.simulator.simulation import Simulation

RETRY_US_MAX = 20_000
RETRY_CHANCE = 0.8
CLOSE_TIMEOUT_MS = 5_000  # of `RaftDriver.close`


class Operations:
    """Executes operations; `operator.Operator` decides which are safe."""

    def __init__(self, simulation: Simulation, network: Network, operator: Operator) -> None:
        self._simulation, self._network, self._operator = simulation, network, operator

    # Voters

    def reconfigure(self) -> None:
        """Request a voter change from each replica that considers itself leader, or move a replica to another port."""
        simulation = self._simulation
        if simulation.rng.randrange(10) == 0:
            self._move_someone()
            return
        self.upgrade()
        for leader in simulation.leaders():
            is_upgraded = leader.running.replica.voters_in_log.kraft_version > 0
            request = self._operator.change(leader) if is_upgraded else None
            if request is not None:
                self._ask(leader, request)
                self._maybe_stall(leader)

    def upgrade(self) -> None:
        """Request kraft.version 1 if voters are not in the log."""
        for leader in self._simulation.leaders():
            if not leader.running.replica.voters_in_log.kraft_version:
                self._simulation.say(f"{leader.id} is asked for kraft.version 1")
                self._simulation.step(leader, lambda leader=leader: leader.step(KraftUpgradeRequested()))  # type: ignore[misc]

    def on_answer(self, envelope: Envelope) -> None:
        """After a timeout, retry the operation, or another one that helps."""
        simulation = self._simulation
        is_timed_out = getattr(envelope.response, "error", None) is Error.REQUEST_TIMED_OUT
        if not is_timed_out or not simulation.faults.reconfigure_every_us or simulation.rng.random() >= RETRY_CHANCE:
            return
        asked = envelope._replace(source=envelope.target, target=envelope.source, response=None)
        simulation.at(simulation.rng.randrange(RETRY_US_MAX), lambda: self._retry(asked))

    def _retry(self, asked: Envelope) -> None:
        simulation = self._simulation
        leader = simulation.replicas[asked.target]
        if leader in simulation.leaders():
            request = asked if simulation.rng.random() < 0.5 else self._operator.change(leader)
            if request is not None:
                self._ask(leader, request)

    def _ask(self, leader: SimulatedReplica, request: Envelope) -> None:
        self._simulation.say(f"asked for: {words.of_envelope(request)}")
        self._simulation.step(leader, lambda: leader.receive(request))

    def _maybe_stall(self, leader: SimulatedReplica) -> None:
        """Cut the leader off while its change is not committed, for about the operator's timeout."""
        simulation = self._simulation
        if not leader.is_up or simulation.rng.random() >= simulation.faults.stall_change_chance:
            return
        timeout_us = leader.config.request_timeout_ms * 1000

        def begin() -> None:
            if leader.is_up and simulation.faults.stall_change_chance:
                cut = self._network.cut_off(leader.id)
                simulation.say(f"no message passes from or to {leader.id}")
                simulation.at(int(timeout_us * simulation.rng.uniform(0.9, 1.6)), lambda: end(cut))

        def end(cut: set[tuple[int, int]]) -> None:
            if self._network.cut is cut:
                self._network.cut = set()
                simulation.say("messages pass everywhere")

        simulation.at(simulation.rng.randrange(5_000), begin)

    def _move_someone(self) -> None:
        simulation = self._simulation
        replica = simulation.rng.choice(list(simulation.replicas.values()))
        if self._operator.may_move(replica):
            replica.next_port += 1
            simulation.say(f"{replica.id} is to listen at port {replica.next_port}")
            self._shut_down(replica)

    # An orderly stop

    def shut_down_someone(self) -> None:
        """Stop a replica as on SIGTERM: it hands over, and ends afterwards or at its timeout."""
        simulation = self._simulation
        self._shut_down(simulation.rng.choice(list(simulation.replicas.values())))

    def _shut_down(self, replica: SimulatedReplica) -> None:
        simulation = self._simulation
        if not replica.is_up or replica.is_stopping:
            return
        simulation.say(f"{replica.id} receives the signal to stop")
        replica.is_stopping = True
        simulation.at(CLOSE_TIMEOUT_MS * 1000, simulation.while_alive(replica, lambda: self._give_up(replica)))
        simulation.step(replica, lambda: replica.step(ShutdownRequested()))

    @staticmethod
    def _give_up(replica: SimulatedReplica) -> None:
        replica.has_handed_over = True
