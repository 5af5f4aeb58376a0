"""The broker's life cycle, without I/O (`BrokerLifecycleManager`).

One request to the controller is in flight at a time. The driver carries out the effects of each event
(`klamm.driving`), and reports the answer of a request, or its failure, as another event.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from klamm.protocol.value import Value


class BrokerState(Enum):
    """The state of a broker; the values are those of Apache Kafka's `BrokerState` metric."""

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

WAITS_FOR_METADATA: Final = (_S.STARTING, _S.RECOVERY, _S.PENDING_CONTROLLED_SHUTDOWN)


class Register(Value):
    """Send a BrokerRegistration; report `on_registered` or `on_failure`."""


class Heartbeat(Value):
    """Send a BrokerHeartbeat with this requested state; report `on_heartbeat_answer` or `on_failure`."""

    broker_epoch: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """None: not known yet, or the cluster's metadata.version has no such directories."""


class StateChanged(Value):
    """The broker is in this state now."""

    state: BrokerState


class RegistrationOverdue(Value):
    """initial.broker.registration.timeout.ms passed without a success: the broker must stop. Nothing more is sent."""


class LogDirFailureOverdue(Value):
    """log.dir.failure.timeout.ms passed before the controller acknowledged that a log directory failed (KIP-858).

    The broker must stop: it must not lead partitions there.
    """


Effect = Register | Heartbeat | StateChanged | RegistrationOverdue | LogDirFailureOverdue


class BrokerLifecycle:
    """Decides when the broker registers, sends heartbeats, asks to be unfenced, and may stop.

    Invariants: `broker_epoch` is -1 exactly until a registration was answered; `state` only moves along
    `NEXT_STATES`; at most one request is in flight.
    """

    def __init__(
        self,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        log_dir_failure_timeout_ms: int,
        draw: Callable[[], float],
    ) -> None:
        """`draw` returns random numbers within [0, 1)."""
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.session_timeout_ms = session_timeout_ms
        self.registration_timeout_ms = registration_timeout_ms
        self.log_dir_failure_timeout_ms = log_dir_failure_timeout_ms
        self.draw = draw
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.fenced = True
        self.ready_to_unfence = False
        self._due_ms: int | None = None
        self._registration_deadline_ms: int | None = None
        self._in_flight = False
        self._is_due_again = False
        """Something happened while a request was in flight that the next one has to report at once."""
        self._is_published = False
        """More metadata was applied while a request was in flight."""
        self._is_another_leaving = False
        """Another broker is in a controlled shutdown, which ends when all have applied the moves of its leaders."""
        self._failures = 0
        self._shutdown_beats = 0
        self._offline_log_dirs: tuple[bytes, ...] = ()
        self._reported_log_dirs: tuple[bytes, ...] = ()
        """The failed directories of the heartbeat in flight."""
        self._cordoned_log_dirs: tuple[bytes, ...] | None = None
        self._log_dir_deadlines_ms: dict[bytes, int] = {}
        """By failed directory, until when the controller has to acknowledge it."""
        self._effects: list[Effect] = []

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`; None while only an answer is awaited, and when nothing more is to be sent."""
        log_dirs_ms = min(self._log_dir_deadlines_ms.values(), default=None)
        request_ms = self._request_due_ms
        if request_ms is None or log_dirs_ms is None:
            return log_dirs_ms if request_ms is None else request_ms
        return min(request_ms, log_dirs_ms)

    @property
    def _request_due_ms(self) -> int | None:
        """When the next request is to be sent, or the registration is overdue."""
        if self._in_flight or self._due_ms is None:
            return None
        overdue_ms = self._registration_deadline_ms
        return self._due_ms if overdue_ms is None else min(self._due_ms, overdue_ms)

    def on_start(self, now_ms: int) -> list[Effect]:
        """Begin: the first registration is due at once."""
        self.become(BrokerState.STARTING)
        self._due_ms = now_ms
        self._registration_deadline_ms = now_ms + self.registration_timeout_ms
        return self.on_timer(now_ms)

    def on_timer(self, now_ms: int) -> list[Effect]:
        """Send the request that is due, if any; it counts as in flight until it is answered or failed."""
        if any(now_ms >= deadline_ms for deadline_ms in self._log_dir_deadlines_ms.values()):
            self._log_dir_deadlines_ms.clear()
            self._effects.append(LogDirFailureOverdue())
        due_ms = self._request_due_ms
        if due_ms is not None and now_ms >= due_ms:
            if self._registration_deadline_ms is not None and now_ms >= self._registration_deadline_ms:
                self._due_ms = None
                self._effects.append(RegistrationOverdue())
            else:
                self._effects.append(self._next_request())
                self._in_flight, self._is_due_again, self._is_published = True, False, False
        effects, self._effects = self._effects, []
        return effects

    def _next_request(self) -> Register | Heartbeat:
        if self.broker_epoch < 0:
            return Register()
        want_fence = not self.ready_to_unfence and self.state in (BrokerState.STARTING, BrokerState.RECOVERY)
        want_shut_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._reported_log_dirs = self._offline_log_dirs
        # Before the broker has caught up, its dynamic configuration is not known.
        cordoned = None if self.state is BrokerState.STARTING else self._cordoned_log_dirs
        return Heartbeat(self.broker_epoch, want_fence, want_shut_down, self._offline_log_dirs, cordoned)

    def on_registered(self, now_ms: int, broker_epoch: int) -> list[Effect]:
        """The controller accepted the registration: the first heartbeat is due at once."""
        self._answered(now_ms)
        self.broker_epoch = broker_epoch
        self._registration_deadline_ms = None
        return self.on_timer(now_ms)

    def on_heartbeat_answer(
        self, now_ms: int, *, caught_up: bool, fenced: bool, should_shut_down: bool
    ) -> list[Effect]:
        """Change the state as the controller's response allows."""
        self._answered(now_ms)
        for directory_id in self._reported_log_dirs:
            self._log_dir_deadlines_ms.pop(directory_id, None)
        self.fenced = fenced
        match self.state:
            case BrokerState.STARTING if caught_up:
                self.become(BrokerState.RECOVERY)
            case BrokerState.STARTING:
                self._due_ms = now_ms + STARTING_HEARTBEAT_MS
            case BrokerState.RECOVERY if not fenced:
                self.become(BrokerState.RUNNING)
                self._due_ms = now_ms + self.heartbeat_interval_ms
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if should_shut_down:
                self.become(BrokerState.SHUTTING_DOWN)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._shutdown_beats += 1
                first = self._shutdown_beats == 1
                self._due_ms = now_ms + (SHUTDOWN_SECOND_HEARTBEAT_MS if first else self.heartbeat_interval_ms)
            case BrokerState.SHUTTING_DOWN:
                pass
            case _:
                self._due_ms = now_ms + self.heartbeat_interval_ms
        is_awaited = self._is_published and self._is_metadata_awaited
        return self._beat_now(now_ms) if self._is_due_again or is_awaited else self.on_timer(now_ms)

    def on_failure(self, now_ms: int) -> list[Effect]:
        """An error or no answer: try again after an exponential pause (100 ms doubling, half a session at most)."""
        self._in_flight = False
        pause_ms = min(BACKOFF_BASE_MS * 2 ** min(self._failures, 20), self.session_timeout_ms // 2)
        self._failures += 1
        if self._due_ms is not None:
            self._due_ms = now_ms + int(pause_ms * (1 + BACKOFF_JITTER * (2 * self.draw() - 1)))
        return self.on_timer(now_ms)

    def on_ready(self, now_ms: int) -> list[Effect]:
        """Logs are recovered: the next heartbeats ask to be unfenced, the first of them now."""
        self.ready_to_unfence = True
        is_awaited = self.state in (BrokerState.STARTING, BrokerState.RECOVERY) and self.broker_epoch >= 0
        return self._beat_now(now_ms) if is_awaited else []

    def on_published(self, now_ms: int, *, is_another_leaving: bool = False) -> list[Effect]:
        """More metadata was applied: a broker that waits for it, to be caught up or to leave, need not wait longer.

        `is_another_leaving`: another broker waits until this one has applied it.
        """
        self._is_published, self._is_another_leaving = True, is_another_leaving
        is_awaited = self._is_metadata_awaited and self.broker_epoch >= 0 and not self._in_flight
        return self._beat_now(now_ms) if is_awaited else []

    @property
    def _is_metadata_awaited(self) -> bool:
        return self.state in WAITS_FOR_METADATA or (self.state is BrokerState.RUNNING and self._is_another_leaving)

    def on_log_dir_failed(self, now_ms: int, directory_id: bytes) -> list[Effect]:
        """A log directory failed: the controller learns it by the next heartbeat, which is due now."""
        self._offline_log_dirs = (*self._offline_log_dirs, directory_id)
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._log_dir_deadlines_ms[directory_id] = now_ms + self.log_dir_failure_timeout_ms
        return self._beat_now(now_ms)

    def on_cordoned(self, now_ms: int, directory_ids: tuple[bytes, ...] | None) -> list[Effect]:
        """These log directories receive no new replicas (KIP-1066): the controller learns a change at once.

        None: the metadata.version of the cluster has no such directories.
        """
        if directory_ids == self._cordoned_log_dirs:
            return []
        self._cordoned_log_dirs = directory_ids
        is_known = self.broker_epoch >= 0 and self.state is not BrokerState.STARTING and directory_ids is not None
        return self._beat_now(now_ms) if is_known else []

    def _beat_now(self, now_ms: int) -> list[Effect]:
        self._is_due_again = True
        if self._due_ms is not None:
            self._due_ms = now_ms
        return self.on_timer(now_ms)

    def on_shutdown_asked(self, now_ms: int) -> list[Effect]:
        """Begin a controlled shutdown; from any state but RUNNING there is nothing to hand over."""
        if self.state is BrokerState.RUNNING:
            self.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._is_due_again, self._due_ms = True, now_ms
        elif self.state not in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            self.become(BrokerState.SHUTTING_DOWN)
        return self.on_timer(now_ms)

    def on_give_up(self, now_ms: int) -> list[Effect]:
        """Stop without the controller's permission (the timeout has passed, or a second signal arrived)."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self.become(BrokerState.SHUTTING_DOWN)
        return self.on_timer(now_ms)

    def _answered(self, now_ms: int) -> None:
        self._in_flight = False
        self._failures = 0
        if self._due_ms is not None:
            self._due_ms = now_ms

    def become(self, state: BrokerState) -> None:
        """Change to a state that `NEXT_STATES` allows; AssertionError for any other."""
        if state not in NEXT_STATES[self.state]:
            raise AssertionError(f"broker state may not move from {self.state.name} to {state.name}")
        self.state = state
        self._effects.append(StateChanged(state))
        if state is BrokerState.SHUTTING_DOWN:
            self._due_ms = None
            self._log_dir_deadlines_ms.clear()
