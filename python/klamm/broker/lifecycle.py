"""The broker's life cycle, without I/O (`BrokerLifecycleManager`).

One request to the controller is in flight at a time. The driver sends what `next_request` returns, and reports the
answer or the failure; time comes in as milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from klamm.protocol.named_tuple import NamedTuple


class BrokerState(Enum):
    """Where a broker stands; the values are those of Apache Kafka's `BrokerState` metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


_S = BrokerState
NEXT_STATES: Final[dict[BrokerState, frozenset[BrokerState]]] = {
    _S.NOT_RUNNING: frozenset({_S.STARTING, _S.SHUTTING_DOWN}),
    _S.STARTING: frozenset({_S.RECOVERY, _S.SHUTTING_DOWN}),
    _S.RECOVERY: frozenset({_S.RUNNING, _S.SHUTTING_DOWN}),
    _S.RUNNING: frozenset({_S.PENDING_CONTROLLED_SHUTDOWN, _S.SHUTTING_DOWN}),
    _S.PENDING_CONTROLLED_SHUTDOWN: frozenset({_S.SHUTTING_DOWN}),
    _S.SHUTTING_DOWN: frozenset(),
}

STARTING_HEARTBEAT_MS: Final = 10
SHUTDOWN_SECOND_HEARTBEAT_MS: Final = 50
BACKOFF_BASE_MS: Final = 100
BACKOFF_JITTER: Final = 0.02


class Register(NamedTuple):
    """Send a BrokerRegistration."""


class Heartbeat(NamedTuple):
    """Send a BrokerHeartbeat with this requested state."""

    broker_epoch: int
    want_fence: bool
    want_shut_down: bool


class BrokerLifecycle:
    """Decides when the broker registers, beats, unfences and may stop.

    Invariants: `broker_epoch` is -1 exactly until a registration was answered; `state` only moves along
    `NEXT_STATES`; at most one request is in flight.
    """

    def __init__(
        self,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        draw: Callable[[], float],
    ) -> None:
        """`draw` gives numbers within [0, 1)."""
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.session_timeout_ms = session_timeout_ms
        self.registration_timeout_ms = registration_timeout_ms
        self.draw = draw
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.fenced = True
        self.ready_to_unfence = False
        self.deadline_ms: int | None = None
        self.registration_deadline_ms: int | None = None
        self._in_flight = False
        self._failures = 0
        self._shutdown_beats = 0

    def on_start(self, now_ms: int) -> None:
        """Begin: the first registration is due at once."""
        self._become(BrokerState.STARTING)
        self.deadline_ms = now_ms
        self.registration_deadline_ms = now_ms + self.registration_timeout_ms

    def next_request(self, now_ms: int) -> Register | Heartbeat | None:
        """The request that is due now, if any; it counts as in flight until it is answered or failed."""
        idle = self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN)
        if idle or self._in_flight or self.deadline_ms is None or now_ms < self.deadline_ms:
            return None
        self._in_flight = True
        if self.broker_epoch < 0:
            return Register()
        want_fence = not self.ready_to_unfence and self.state in (BrokerState.STARTING, BrokerState.RECOVERY)
        return Heartbeat(self.broker_epoch, want_fence, self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    def on_registered(self, now_ms: int, broker_epoch: int) -> None:
        """The controller accepted the registration: beat at once."""
        self._answered(now_ms)
        self.broker_epoch = broker_epoch
        self.registration_deadline_ms = None

    def on_heartbeat_answer(self, now_ms: int, *, caught_up: bool, fenced: bool, should_shut_down: bool) -> None:
        """Move along the table as the controller's answer allows."""
        self._answered(now_ms)
        self.fenced = fenced
        match self.state:
            case BrokerState.STARTING if caught_up:
                self._become(BrokerState.RECOVERY)
            case BrokerState.STARTING:
                self.deadline_ms = now_ms + STARTING_HEARTBEAT_MS
            case BrokerState.RECOVERY if not fenced:
                self._become(BrokerState.RUNNING)
                self.deadline_ms = now_ms + self.heartbeat_interval_ms
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if should_shut_down:
                self._become(BrokerState.SHUTTING_DOWN)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._shutdown_beats += 1
                first = self._shutdown_beats == 1
                self.deadline_ms = now_ms + (SHUTDOWN_SECOND_HEARTBEAT_MS if first else self.heartbeat_interval_ms)
            case _:
                self.deadline_ms = now_ms + self.heartbeat_interval_ms

    def on_failure(self, now_ms: int) -> None:
        """An error or no answer: try again after an exponential pause (100 ms doubling, half a session at most)."""
        self._in_flight = False
        pause_ms = min(BACKOFF_BASE_MS * 2 ** min(self._failures, 20), self.session_timeout_ms // 2)
        self._failures += 1
        self.deadline_ms = now_ms + int(pause_ms * (1 + BACKOFF_JITTER * (2 * self.draw() - 1)))

    def on_ready(self, now_ms: int) -> None:
        """Logs are recovered: the next heartbeats ask to be unfenced, the first of them now."""
        self.ready_to_unfence = True
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY) and self.broker_epoch >= 0:
            self.deadline_ms = now_ms

    def on_shutdown_asked(self, now_ms: int) -> None:
        """Begin a controlled shutdown; from any state but RUNNING there is nothing to hand over."""
        if self.state is BrokerState.RUNNING:
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self.deadline_ms = now_ms
        elif self.state not in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            self._become(BrokerState.SHUTTING_DOWN)

    def on_give_up(self) -> None:
        """Stop without the controller's leave (time is up, or a second signal)."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._become(BrokerState.SHUTTING_DOWN)

    def registration_overdue(self, now_ms: int) -> bool:
        """Whether initial.broker.registration.timeout.ms passed without a success: the broker must stop."""
        return self.registration_deadline_ms is not None and now_ms >= self.registration_deadline_ms

    def _answered(self, now_ms: int) -> None:
        self._in_flight = False
        self._failures = 0
        self.deadline_ms = now_ms

    def _become(self, state: BrokerState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise AssertionError(f"broker state may not move from {self.state.name} to {state.name}")
        self.state = state
        if state is BrokerState.SHUTTING_DOWN:
            self.deadline_ms = None
