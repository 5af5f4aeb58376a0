"""Requests between nodes: delayed, lost, cut off, or unanswered because a process ended."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klamm.testing.simulator.cuts import describe_cut, draw_cut

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.timeline import Timeline

CONTROLLER = 0
CLIENT = -1

Reply = Callable[[Any], None]


class Repeated(enum.Enum):
    """Requests that may arrive twice."""

    PROPOSAL = "AlterPartition"
    FETCH = "Fetch"


class Request(NamedTuple):
    """A request, and what follows. Exactly one of `on_answer` and `on_failure` is called while the sender lives.

    A request that fails may have been handled, and may be handled later.
    """

    handle: Callable[[Reply], None]
    """At the target; it may reply later, or never."""
    on_answer: Callable[[Any], None]
    on_failure: Callable[[], None]
    timeout_us: int
    repeated: Repeated | None = None
    """It may arrive a second time, and late, as what a sender repeats, or what an earlier connection still holds."""


class Node(Protocol):
    """A process that sends or receives."""

    id: int

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, skipped if the process has ended by then."""


class Process(Node, Protocol):
    """A node whose lives end."""

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Schedule a step of this life."""


class Network:
    """Decides about the fate of each message."""

    def __init__(self, timeline: Timeline, faults: BrokerFaults) -> None:
        self._timeline, self._faults = timeline, faults
        self.cut: set[tuple[int, int]] = set()  # (from, to) that messages do not pass

    def call(self, source: Node, target: Node, request: Request) -> None:
        """Send a request."""
        done = False

        def end(act: Callable[[], None]) -> None:
            nonlocal done
            if not done:
                done = True
                act()

        def fail() -> None:
            end(request.on_failure)

        answers: list[Any] = []
        # A connection ends with the life that made it.
        answered = source.while_alive(lambda: end(lambda: request.on_answer(answers[0])))

        def reply(answer: Any) -> None:
            answers.append(answer)
            self._carry(target.id, source.id, answered, broken)

        def broken() -> None:
            # The connection breaks, which the sender notices soon, or only by its timeout.
            if self._timeline.rng.random() < 0.5:
                self._timeline.at(self._delay_us(), source.while_alive(fail))

        self._timeline.at(request.timeout_us, source.while_alive(fail))
        arrive = target.while_alive(lambda: request.handle(reply))
        self._carry(source.id, target.id, arrive, broken)
        if request.repeated is not None:
            self.on_repeatable(request.repeated, source.id, arrive)

    def on_repeatable(self, kind: Repeated, source_id: int, arrive: Callable[[], None]) -> None:
        """A request was sent that could arrive once more."""
        faults, rng = self._faults, self._timeline.rng
        chance = faults.repeat_chance if kind is Repeated.PROPOSAL else faults.repeat_fetch_chance
        if rng.random() < chance:
            self._timeline.at(rng.randrange(faults.repeat_us_max), arrive)

    def _carry(self, source_id: int, target_id: int, arrive: Callable[[], None], lose: Callable[[], None]) -> None:
        if (source_id, target_id) in self.cut or self._timeline.rng.random() < self._faults.drop_chance:
            lose()
        else:
            self._timeline.at(self._delay_us(), arrive)

    def _delay_us(self) -> int:
        rng, faults = self._timeline.rng, self._faults
        is_slow = rng.random() < faults.slow_message_chance
        return 50 + rng.randrange(faults.slow_message_us_max if is_slow else faults.delay_us_max)

    def change_partition(self, ids: list[int]) -> None:
        """Heal, split into two parts, cut one node off, or cut single directions."""
        self.cut = draw_cut(ids, self._timeline.rng)
        self._timeline.say(describe_cut(self.cut))
