"""Shared state of the parts of a simulated cluster: time, random numbers, faults, the network and the controller."""

from __future__ import annotations

import abc
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from klamm.testing.simulator.brokers.network import Network, Node, Process, Reply
from klamm.testing.simulator.timeline import Timeline

if TYPE_CHECKING:
    from klamm._engine.simulation import ReplicaGauges
    from klamm.testing.simulator.brokers.controller import Controllers
    from klamm.testing.simulator.brokers.faults import BrokerFaults
    from klamm.testing.simulator.brokers.fetch_session import Fetch
    from klamm.testing.simulator.brokers.history import Key


class Leader(Node, Protocol):
    """A broker as its followers see it."""

    def on_fetch(self, fetch: Fetch, reply: Reply) -> None:
        """A follower's fetch has arrived."""

    def leader_offsets(self, key: Key, leader_epoch: int) -> tuple[int, int] | None:
        """A follower asks where this log begins and ends."""

    def read(self, key: Key, offset: int, end: int) -> bytes | None:
        """Batches from an offset on, up to another one; None: it has not all of them."""


class Coordinating(Node, Protocol):
    """A broker as the coordinators of others see it."""

    def answer(self, api_key: int, version: int, body: bytes, reply: Reply) -> None:
        """A request of theirs has arrived."""


class Scene(Timeline, abc.ABC):
    """Everything of a run but the brokers, which report to it by their ids. `world.BrokerWorld` is it."""

    controller: Controllers

    def __init__(self, rng: random.Random, faults: BrokerFaults) -> None:
        super().__init__(rng)
        self.faults = faults
        self.network = Network(self, faults)
        self.metadata_delay_us = rng.choice([2_000, 20_000, 100_000])
        self.request_timeout_us = 1_000_000

    def flush_later(self, process: Process, end: Callable[[], None]) -> None:
        """A flush has begun: `end` it after a while."""
        is_slow = self.rng.random() < self.faults.slow_flush_chance
        process.later(50 + self.rng.randrange(self.faults.slow_flush_us_max if is_slow else 1_000), end)

    def follow_roles_later(self, process: Process, act: Callable[[], None]) -> None:
        """The roles of replicas have changed: `act` moves them between fetchers."""
        process.later(self.rng.randrange(self.faults.role_delay_us_max), act)

    @abc.abstractmethod
    def lives(self) -> dict[int, int]:
        """Which life each broker is in, of those that are up."""

    @abc.abstractmethod
    def leader(self, broker_id: int) -> Leader:
        """The broker with this id."""

    @abc.abstractmethod
    def coordinating(self, broker_id: int) -> Coordinating:
        """The broker with this id."""

    @abc.abstractmethod
    def on_coordinator_effect(self, broker_id: int) -> None:
        """A coordinator has appended something."""

    @abc.abstractmethod
    def on_own_acked(self, broker_id: int, key: Key, batch: bytes, code: int, end_offset: int) -> None:
        """The result of a coordinator's append is known."""

    @abc.abstractmethod
    def gauges(self, broker_id: int, key: Key) -> ReplicaGauges | None:
        """The state of a replica after the last step of its broker."""

    @abc.abstractmethod
    def check(self, broker_id: int) -> None:
        """A broker took a step: check the invariants."""

    @abc.abstractmethod
    def on_power_cut(self, broker_id: int) -> None:
        """The power of a broker was cut."""

    @abc.abstractmethod
    def on_unclean_election_asked(self) -> None:
        """An operator asks for unclean elections."""

    @abc.abstractmethod
    def on_produced(self, broker_id: int, key: Key) -> None:
        """A leader has appended a batch with acks=all."""

    @abc.abstractmethod
    def on_acked(self, broker_id: int, key: Key, batch: bytes, code: int, end_offset: int) -> None:
        """A leader answers an append with acks=all."""

    @abc.abstractmethod
    def on_end_offset(self, broker_id: int, key: Key, end_offset: int) -> None:
        """A leader tells a consumer where its log ends."""

    @abc.abstractmethod
    def on_deleting(self, broker_id: int, key: Key, offset: int) -> None:
        """A leader has moved its log start up."""

    @abc.abstractmethod
    def on_deleted(self, broker_id: int, key: Key, offset: int, lives: dict[int, int]) -> None:
        """A leader answers DeleteRecords, which arrived when these lives were there."""

    def on_repaired(self, text: str) -> None:
        """Damaged batches were replaced."""
        self.say(text)

    @abc.abstractmethod
    def on_ended(self, broker_id: int) -> None:
        """A life of a broker has ended."""

    @abc.abstractmethod
    def on_stopped(self, broker_id: int) -> None:
        """A controlled shutdown has ended."""
