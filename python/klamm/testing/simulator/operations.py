"""What an operator does to a running quorum: changes its voters, tries again, moves a replica, stops one orderly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.raft.events import KraftUpgradeRequested, ShutdownRequested
from klamm.raft.messages import Error
from klamm.testing.simulator import descriptions as words

if TYPE_CHECKING:
    from klamm.testing.simulator.envelope import Envelope
    from klamm.testing.simulator.simulated_replica import SimulatedReplica
    from klamm.testing.simulator.world import World

RETRY_US_MAX = 20_000
RETRY_CHANCE = 0.8
PATIENCE_MS = 5_000  # of `RaftDriver.close`


class Operations:
    """The operator's hands; `operator.Operator` says what is careful enough."""

    def __init__(self, world: World) -> None:
        self._world = world

    # Voters

    def reconfigure(self) -> None:
        """Ask each replica that believes to lead for a change of voters, or move a replica to another port."""
        world = self._world
        if world.rng.randrange(10) == 0:
            self._move_someone()
            return
        self.upgrade()
        for leader in world.leaders():
            is_upgraded = leader.running.replica.voters_in_log.kraft_version > 0
            request = world.operator.change(leader) if is_upgraded else None
            if request is not None:
                self._ask(leader, request)
                self._maybe_stall(leader)

    def upgrade(self) -> None:
        """Ask for the voters in the log, where they are not."""
        for leader in self._world.leaders():
            if not leader.running.replica.voters_in_log.kraft_version:
                self._world.say(f"{leader.id} is asked for kraft.version 1")
                self._world.step(leader, lambda leader=leader: leader.step(KraftUpgradeRequested()))  # type: ignore[misc]

    def on_answer(self, envelope: Envelope) -> None:
        """After a time-out the operator retries: the same operation, or another that helps."""
        world = self._world
        is_timed_out = getattr(envelope.response, "error", None) is Error.REQUEST_TIMED_OUT
        if not is_timed_out or not world.faults.reconfigure_every_us or world.rng.random() >= RETRY_CHANCE:
            return
        asked = envelope._replace(source=envelope.target, target=envelope.source, response=None)
        world.at(world.rng.randrange(RETRY_US_MAX), lambda: self._retry(asked))

    def _retry(self, asked: Envelope) -> None:
        world = self._world
        leader = world.replicas[asked.target]
        if leader in world.leaders():
            request = asked if world.rng.random() < 0.5 else world.operator.change(leader)
            if request is not None:
                self._ask(leader, request)

    def _ask(self, leader: SimulatedReplica, request: Envelope) -> None:
        self._world.say(f"asked for: {words.of_envelope(request)}")
        self._world.step(leader, lambda: leader.receive(request))

    def _maybe_stall(self, leader: SimulatedReplica) -> None:
        """Cut the leader off while its change is not committed, for about as long as the operator waits for it."""
        world = self._world
        if not leader.is_up or world.rng.random() >= world.faults.stall_change_chance:
            return
        timeout_us = leader.config.request_timeout_ms * 1000

        def begin() -> None:
            if leader.is_up and world.faults.stall_change_chance:
                cut = world.network.cut_off(leader.id)
                world.say(f"no message passes from or to {leader.id}")
                world.at(int(timeout_us * world.rng.uniform(0.9, 1.6)), lambda: end(cut))

        def end(cut: set[tuple[int, int]]) -> None:
            if world.network.cut is cut:
                world.network.cut = set()
                world.say("messages pass everywhere")

        world.at(world.rng.randrange(5_000), begin)

    def _move_someone(self) -> None:
        world = self._world
        replica = world.rng.choice(list(world.replicas.values()))
        if world.operator.may_move(replica):
            replica.next_port += 1
            world.say(f"{replica.id} is to listen at port {replica.next_port}")
            self._shut_down(replica)

    # An orderly stop

    def shut_down_someone(self) -> None:
        """Stop a replica as SIGTERM does: it hands over, and ends when that is done or took too long."""
        world = self._world
        self._shut_down(world.rng.choice(list(world.replicas.values())))

    def _shut_down(self, replica: SimulatedReplica) -> None:
        world = self._world
        if not replica.is_up or replica.is_stopping:
            return
        world.say(f"{replica.id} is told to stop")
        replica.is_stopping = True
        world.at(PATIENCE_MS * 1000, world.while_alive(replica, lambda: self._give_up(replica)))
        world.step(replica, lambda: replica.step(ShutdownRequested()))

    @staticmethod
    def _give_up(replica: SimulatedReplica) -> None:
        replica.has_handed_over = True
