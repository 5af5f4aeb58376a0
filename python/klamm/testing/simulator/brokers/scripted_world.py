"""The cluster of a scenario: messages that a script keeps, and flushes and roles that it holds back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.brokers.network import Network, Node, Process, Repeated, Request
from klamm.testing.simulator.brokers.world import BrokerWorld, ClusterPlan

if TYPE_CHECKING:
    from pathlib import Path


class ScriptedNetwork(Network):
    """Keeps a copy of some requests, which the script delivers once more."""

    def __init__(self, world: BrokerWorld) -> None:
        super().__init__(world, world.faults)
        self.proposals: list[Callable[[], None]] = []
        self.holds_proposals = False
        self.loses_answers = False
        self.fetches: dict[int, Callable[[], None]] = {}  # the last one, by follower

    def call(self, source: Node, target: Node, request: Request) -> None:
        """Send a request, unless it is held."""
        if self.holds_proposals and request.repeated is Repeated.PROPOSAL:
            handle = request.handle
            self.proposals.append(lambda: handle(lambda answer: None))
            request = request._replace(handle=lambda reply: None, repeated=None)
        elif self.loses_answers and request.repeated is Repeated.PROPOSAL:
            arrive = request.handle
            request = request._replace(handle=lambda reply: arrive(lambda answer: None))
        super().call(source, target, request)

    def on_repeatable(self, kind: Repeated, source_id: int, arrive: Callable[[], None]) -> None:
        """A request was sent that could arrive once more."""
        match kind:
            case Repeated.PROPOSAL:
                self.proposals.append(arrive)
            case Repeated.FETCH:
                self.fetches[source_id] = arrive
            case Repeated.PRODUCE | Repeated.OF_COORDINATOR:
                pass
            case _:
                assert_never(kind)


class ScriptedWorld(BrokerWorld):
    """A cluster in which the script ends flushes if it wants to."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        super().__init__(random.Random("scenario"), BrokerFaults(delay_us_max=1), folder, plan)
        self.scripted_network = ScriptedNetwork(self)
        self.network = self.scripted_network
        self.metadata_delay_us = 1_000
        self.held: dict[int, list[Callable[[], None]]] = {}
        self.held_roles: dict[int, list[Callable[[], None]]] = {}
        self.on_line: Callable[[str], None] = lambda line: None

    def on_repaired(self, text: str) -> None:
        """Damaged batches were replaced."""
        self.on_line(text)

    def on_stopped(self, broker_id: int) -> None:
        """A controlled shutdown has ended: the script starts the broker again."""

    def flush_later(self, process: Process, end: Callable[[], None]) -> None:
        """A flush has begun."""
        if process.id in self.held:
            self.held[process.id].append(process.while_alive(end))
        else:
            process.later(500, end)

    def follow_roles_later(self, process: Process, act: Callable[[], None]) -> None:
        """The roles of replicas have changed."""
        if process.id in self.held_roles:
            self.held_roles[process.id].append(process.while_alive(act))
        else:
            process.later(0, act)
