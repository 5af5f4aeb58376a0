"""Shared state of the parts of a simulated quorum: a timeline, faults and replicas."""

import abc
import random
from collections.abc import Callable

from klamm.raft.election.roles import Role
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.simulated_replica import SimulatedReplica
from klamm.testing.simulator.timeline import Timeline


class Simulation(Timeline, abc.ABC):
    """The events of a quorum. `world.World` decides what a step of a replica causes."""

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        super().__init__(rng)
        self.faults = faults
        self.replicas: dict[int, SimulatedReplica] = {}

    @abc.abstractmethod
    def step(self, replica: SimulatedReplica, act: Callable[[], None]) -> None:
        """Run a step of a running replica, which may crash in it, and handle the results."""

    def while_alive(self, replica: SimulatedReplica, act: Callable[[], None]) -> Callable[[], None]:
        """A step of the replica, skipped if its current life has ended by then."""
        life = replica.life

        def happen() -> None:
            if replica.is_up and replica.life == life:
                self.step(replica, act)

        return happen

    def leaders(self) -> list[SimulatedReplica]:
        """The replicas that are leader, each in its epoch."""
        return [replica for replica in self.replicas.values() if replica.role is Role.LEADER]
