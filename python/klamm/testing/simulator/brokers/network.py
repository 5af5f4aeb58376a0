"""Requests between nodes: delayed, lost, cut off, or unanswered because a process ended."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
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
    PRODUCE = "Produce"
    OF_COORDINATOR = "AddPartitionsToTxn and WriteTxnMarkers"


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
    """It may arrive a second time, and late, like a repeated request, or one still in an earlier connection."""
    on_arrival: Callable[[], None] | None = None
    """It is at the target, whose process may be paused."""


class Node(Protocol):
    """A process that sends or receives."""

    id: int

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, skipped if the process has ended by then."""


class Process(Node, Protocol):
    """A node that can crash and restart."""

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Schedule a step of this life."""


class Network:
    """Decides about the fate of each message."""

    def __init__(self, timeline: Timeline, faults: BrokerFaults) -> None:
        self._timeline, self._faults = timeline, faults
        self.cut: set[tuple[int, int]] = set()  # (from, to) that messages do not pass

    def call(self, source: Node, target: Node, request: Request) -> None:
        """Send a request."""
        call = _Call(self, source.id, target.id, request)
        # The call does not hold these, which hold it: so it is freed when it is over, without the garbage collector.
        # A connection ends with the incarnation that opened it.
        answered = source.while_alive(call.end_with_answer)
        failed = source.while_alive(call.end_with_failure)
        self._timeline.at(request.timeout_us, failed)
        arrive = target.while_alive(partial(call.handle, answered, failed))
        if (on_arrival := request.on_arrival) is not None:
            handle = arrive

            def arrive() -> None:
                on_arrival()
                handle()

        self.carry(source.id, target.id, arrive, failed)
        if request.repeated is not None:
            self.on_repeatable(request.repeated, source.id, arrive)

    def on_repeatable(self, kind: Repeated, source_id: int, arrive: Callable[[], None]) -> None:
        """A request was sent that could arrive once more."""
        faults, rng = self._faults, self._timeline.rng
        chance = faults.repeat_chance if kind is Repeated.PROPOSAL else faults.repeat_fetch_chance
        if rng.random() < chance:
            self._timeline.at(rng.randrange(faults.repeat_us_max), arrive)

    def carry(self, source_id: int, target_id: int, arrive: Callable[[], None], failed: Callable[[], None]) -> None:
        """Deliver a message after a while, or lose it."""
        if (source_id, target_id) in self.cut or self._timeline.rng.random() < self._faults.drop_chance:
            # The connection breaks, which the sender notices soon, or only by its timeout.
            if self._timeline.rng.random() < 0.5:
                self._timeline.at(self.delay_us(), failed)
        else:
            self._timeline.at(self.delay_us(), arrive)

    def delay_us(self) -> int:
        """How long a message takes."""
        random, faults = self._timeline.rng.random, self._faults
        is_slow = random() < faults.slow_message_chance
        return 50 + int(random() * (faults.slow_message_us_max if is_slow else faults.delay_us_max))

    def change_partition(self, ids: list[int]) -> None:
        """Heal, split into two parts, cut one node off, or cut single directions."""
        self.cut = draw_cut(ids, self._timeline.rng)
        self._timeline.say(describe_cut(self.cut))


class _Call:
    """A request on its way, and its answer."""

    __slots__ = ("_answer", "_is_done", "_network", "_request", "_source_id", "_target_id")

    def __init__(self, network: Network, source_id: int, target_id: int, request: Request) -> None:
        self._network, self._request = network, request
        self._source_id, self._target_id = source_id, target_id
        self._is_done = False
        self._answer: Any = None

    def handle(self, answered: Callable[[], None], failed: Callable[[], None]) -> None:
        """The request has arrived; `answered` and `failed` are what may follow at the sender."""
        self._request.handle(partial(self._reply, answered, failed))

    def _reply(self, answered: Callable[[], None], failed: Callable[[], None], answer: Any) -> None:
        if self._answer is None:  # of a request that arrived twice, the first answer counts
            self._answer = answer
        self._network.carry(self._target_id, self._source_id, answered, failed)

    def end_with_answer(self) -> None:
        """The answer has arrived."""
        if not self._is_done:
            self._is_done = True
            self._request.on_answer(self._answer)

    def end_with_failure(self) -> None:
        """There will be no answer."""
        if not self._is_done:
            self._is_done = True
            self._request.on_failure()
