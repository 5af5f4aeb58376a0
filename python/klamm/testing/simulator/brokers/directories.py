"""The log directories of one life of a simulated broker: assignments, failures, moves, and damage that is repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm.controller.operations.nodes import ASSIGN_REPLICAS_TO_DIRS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import AssignReplicasToDirsRequest
from klamm.testing.simulator.brokers.controller import Asked
from klamm.testing.simulator.brokers.network import Process, Reply, Request

if TYPE_CHECKING:
    from klamm._engine.simulation import SimulatedBroker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene

ASSIGN_VERSION: Final = 0
PAUSE_US: Final = 50_000

Assignment = tuple[bytes, "Key"]
"""A directory and the replica in it."""


class Life(Process, Protocol):
    """The life of a broker with log directories."""

    engine: SimulatedBroker
    is_serving: bool

    @property
    def now_ms(self) -> int:
        """Its clock."""

    @property
    def epoch(self) -> int:
        """The broker epoch."""

    def ask_controller(self, asked: Asked, on_answer: Callable[[Any], None], on_failure: Callable[[], None]) -> None:
        """Send a request to the controller."""


class Directories:
    """Reports directories to the controller, moves replicas, and repairs damage."""

    def __init__(self, scene: Scene, broker: Life, *, has_several: bool, may_be_damaged: bool) -> None:
        self._scene, self._broker, self._engine = scene, broker, broker.engine
        self._pending: dict[Key, bytes] = {}
        self._is_asking = False
        self._has_several, self._may_be_damaged = has_several, may_be_damaged

    def begin(self) -> None:
        """Move and repair from now on."""
        if self._has_several:
            self._broker.later(PAUSE_US, self._step_moves)
        if self._may_be_damaged:
            self._broker.later(PAUSE_US, self._repair)

    # The controller

    def assign(self, found: Sequence[Assignment]) -> None:
        """Tell the controller in which directories these replicas are."""
        self._pending.update((key, directory) for directory, key in found)
        self._send()

    def _send(self) -> None:
        if self._is_asking or not self._pending or self._broker.epoch < 0:
            return
        self._is_asking = True
        sent = dict(self._pending)
        assignments = tuple((directory, *key) for key, directory in sent.items())
        request = AssignReplicasToDirsRequest(self._broker.id, self._broker.epoch, assignments)

        def answered(answer: Any) -> None:
            if answer.error_code is not ErrorCode.NONE:
                again()
                return
            self._pending = {key: to for key, to in self._pending.items() if sent.get(key) != to}
            codes = zip(sent.items(), answer.partition_errors, strict=True)
            assigned = [(directory, key) for (key, directory), code in codes if code is ErrorCode.NONE]
            self._engine.on_directories_assigned(assigned)
            end()

        def end() -> None:
            self._is_asking = False
            self._send()

        def again() -> None:
            self._broker.later(PAUSE_US, end)

        self._broker.ask_controller(Asked(ASSIGN_REPLICAS_TO_DIRS, request, ASSIGN_VERSION), answered, again)

    # Moves

    def _step_moves(self) -> None:
        self._broker.later(1 + self._scene.rng.randrange(2 * PAUSE_US), self._step_moves)
        if self._broker.is_serving:
            self.assign(self._engine.step_moves(self._broker.now_ms))

    # Damage

    def _repair(self) -> None:
        self._broker.later(1 + self._scene.rng.randrange(4 * PAUSE_US), self._repair)
        if not self._broker.is_serving:
            return
        for key, ranges, others in self._engine.damage():
            if ranges and others:
                self._ask_for(key, ranges[0], self._scene.rng.choice(others))

    def _ask_for(self, key: Key, offsets: tuple[int, int], other: int) -> None:
        first, end = offsets
        target = self._scene.leader(other)

        def answered(found: Any) -> None:
            if self._engine.repair(key, first, found):
                self._scene.on_repaired(
                    f"broker {self._broker.id} replaces {first}..{end - 1} by those of broker {other}"
                )

        def handle(reply: Reply) -> None:
            found = target.read(key, first, end)
            if found is not None:
                reply(found)

        request = Request(handle, answered, lambda: None, self._scene.request_timeout_us)
        self._scene.network.call(self._broker, target, request)
