"""Runs the broker's life cycle against the active controller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, assert_never

from klamm.broker.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    Effect,
    Heartbeat,
    LogDirFailureOverdue,
    Register,
    RegistrationOverdue,
    StateChanged,
)
from klamm.controller.operations.nodes import BROKER_HEARTBEAT, BROKER_REGISTRATION
from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.driving.running_time import RunningTime
from klamm.node.controller.controller_channel import ControllerChannel
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

log = logging.getLogger("klamm.node.registration")

LOOK_S: Final = 0.1
LONG_PAUSE_MS: Final = 1_000
"""A heartbeat this late means that the process did not run, not that the loop was busy."""


class Registration:
    """Registers the broker, sends its heartbeats, and runs its controlled shutdown."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        controller: ControllerChannel,
        request: Callable[[], BrokerRegistrationRequest],
        applied_offset: Callable[[], int],
        on_fault: Callable[[Exception], None],
        *,
        ask_timeout_ms: int,
        foreign_cluster: Callable[[], str | None] = lambda: None,
        is_majority_down: Callable[[], bool] = lambda: False,
        on_pause: Callable[[int], None] = lambda pause_ms: None,
    ) -> None:
        """`ask_timeout_ms` bounds each request.

        `on_fault` receives the error that ends the life cycle early, `on_pause` for how long the process did not run.

        `foreign_cluster` returns a message if a controller answered with another cluster id. `is_majority_down` returns
        whether so many controllers refuse connections that the others cannot elect a leader.
        """
        self._ask_timeout_ms = ask_timeout_ms
        self._is_majority_down = is_majority_down
        self._on_pause = on_pause
        self._foreign_cluster = foreign_cluster
        self._foreign_answer: str | None = None
        self._on_fault = on_fault
        self._last_error = ""
        self._lifecycle = lifecycle
        self._controller = controller
        self._request = request
        self._applied_offset = applied_offset
        self._clock = LoopClock.of_sessions()
        self._now_ms = self._clock.now_ms
        self._timer = DeadlineTimer(self._clock, self._on_timer)
        self._running_time = RunningTime(self._now_ms(), LONG_PAUSE_MS)
        self._exchange: asyncio.Task[None] | None = None
        self.registered = asyncio.Event()
        self.running = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before it."""
        return self._lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        """The current state of the life cycle."""
        return self._lifecycle.state

    def start(self) -> None:
        """Start to register."""
        self._carry_out(self._lifecycle.on_start(self._now_ms()))

    def ready(self) -> None:
        """The broker can serve: request to be unfenced."""
        self._carry_out(self._lifecycle.on_ready(self._now_ms()))

    def on_published(self, *, is_another_leaving: bool) -> None:
        """A newer image was applied; in it another broker may be in a controlled shutdown."""
        self._carry_out(self._lifecycle.on_published(self._now_ms(), is_another_leaving=is_another_leaving))

    def on_log_dir_failed(self, directory_id: bytes) -> None:
        """Report the failed directory to the controller with a heartbeat that is sent now."""
        self._carry_out(self._lifecycle.on_log_dir_failed(self._now_ms(), directory_id))

    def on_cordoned(self, directory_ids: tuple[bytes, ...] | None) -> None:
        """Report the cordoned log directories to the controller, if they have changed."""
        self._carry_out(self._lifecycle.on_cordoned(self._now_ms(), directory_ids))

    async def shut_down(self, timeout_s: float) -> None:
        """Controlled shutdown: wait up to `timeout_s` for the controller's permission.

        If no controller can be elected it does not wait, unlike Apache Kafka, which always waits 5 minutes
        (docs/decisions/0032).
        """
        self._carry_out(self._lifecycle.on_shutdown_asked(self._now_ms()))
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_ended_or_hopeless()
        except TimeoutError:
            text = "the controller did not permit the shutdown within %g s; the broker stops without moving leaders"
            log.warning(text, timeout_s)
        self.stop()

    async def _until_ended_or_hopeless(self) -> None:
        while not self._is_majority_down():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), LOOK_S)
                return
        log.warning("most controllers refuse connections; the broker stops without moving leaders")

    def stop(self) -> None:
        """End without a controlled shutdown."""
        self._carry_out(self._lifecycle.on_give_up(self._now_ms()))
        self._timer.cancel()
        if self._exchange is not None:
            self._exchange.cancel()

    # Effects

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Register():
                    self._exchange = asyncio.ensure_future(self._guarded(self._register))
                case Heartbeat():
                    self._exchange = asyncio.ensure_future(self._guarded(partial(self._send_heartbeat, effect)))
                case StateChanged(BrokerState.RUNNING):
                    self.running.set()
                case StateChanged(BrokerState.SHUTTING_DOWN):
                    self.ended.set()
                case StateChanged():
                    pass
                case RegistrationOverdue():
                    self._on_fault(self._registration_timeout_error())
                case LogDirFailureOverdue():
                    self._on_fault(self._log_dir_timeout_error())
                case _:
                    assert_never(effect)
        self._timer.arm(self._lifecycle.deadline_ms)

    def _on_timer(self, at_ms: int) -> None:
        now_ms = self._now_ms()
        self._running_time.on_turn(now_ms, at_ms)
        pause_ms = self._running_time.take_pause()
        if pause_ms:
            self._on_pause(pause_ms)
        self._carry_out(self._lifecycle.on_timer(now_ms))

    def _log_dir_timeout_error(self) -> TimeoutError:
        timeout_ms = self._lifecycle.log_dir_failure_timeout_ms
        return TimeoutError(
            f"the controller did not acknowledge within {timeout_ms} ms that a log directory failed "
            "(log.dir.failure.timeout.ms)"
        )

    def _registration_timeout_error(self) -> TimeoutError:
        timeout_ms = self._lifecycle.registration_timeout_ms
        foreign = self._foreign_answer or self._foreign_cluster()
        return TimeoutError(
            f"no controller registered this broker within {timeout_ms} ms "
            "(initial.broker.registration.timeout.ms): "
            f"{foreign or 'check whether the controllers run and have elected a leader'}"
        )

    async def _guarded(self, exchange: Callable[[], Awaitable[list[Effect]]]) -> None:
        """Run an exchange with the controller and its effects. After an unexpected exception it is repeated."""
        try:
            effects = await exchange()
        except Exception as error:  # the registration and its heartbeats must continue
            if repr(error) != self._last_error:  # it is logged once while it is the same
                self._last_error = repr(error)
                log.error("the exchange with the controller failed, and is retried: %r", error, exc_info=error)
            effects = self._lifecycle.on_failure(self._now_ms())
        else:
            self._last_error = ""
        self._carry_out(effects)

    async def _register(self) -> list[Effect]:
        answer = await self._controller.ask(BROKER_REGISTRATION, self._request(), self._ask_timeout_ms)
        if self._is_refused(answer):
            return self._lifecycle.on_failure(self._now_ms())
        log.info("registered with broker epoch %d", answer.broker_epoch)
        self.registered.set()
        return self._lifecycle.on_registered(self._now_ms(), answer.broker_epoch)

    async def _send_heartbeat(self, beat: Heartbeat) -> list[Effect]:
        request = BrokerHeartbeatRequest(
            broker_id=self._request().broker_id,
            broker_epoch=beat.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=beat.want_fence,
            want_shut_down=beat.want_shut_down,
            offline_log_dirs=beat.offline_log_dirs,
            cordoned_log_dirs=beat.cordoned_log_dirs,
        )
        answer = await self._controller.ask(BROKER_HEARTBEAT, request, self._ask_timeout_ms)
        if self._is_refused(answer):
            return self._lifecycle.on_failure(self._now_ms())
        return self._lifecycle.on_heartbeat_answer(
            self._now_ms(),
            caught_up=answer.is_caught_up,
            fenced=answer.is_fenced,
            should_shut_down=answer.should_shut_down,
        )

    def _is_refused(self, answer: BrokerRegistrationResponse | BrokerHeartbeatResponse) -> bool:
        if answer.error_code is ErrorCode.NONE:
            return False
        if answer.error_code is ErrorCode.INCONSISTENT_CLUSTER_ID and self._foreign_answer is None:
            self._foreign_answer = (
                "the active controller is of another cluster (INCONSISTENT_CLUSTER_ID): this broker was formatted for "
                f"cluster.id {self._request().cluster_id}, as its meta.properties says"
            )
            log.error("%s", self._foreign_answer)
        log.info("the controller answered %s; retrying", answer.error_code.name)
        return True


def lifecycle(
    heartbeat_interval_ms: int, session_timeout_ms: int, registration_timeout_ms: int, log_dir_failure_timeout_ms: int
) -> BrokerLifecycle:
    """The core with the random numbers of this process."""
    return BrokerLifecycle(
        heartbeat_interval_ms=heartbeat_interval_ms,
        session_timeout_ms=session_timeout_ms,
        registration_timeout_ms=registration_timeout_ms,
        log_dir_failure_timeout_ms=log_dir_failure_timeout_ms,
        draw=_draw,
    )


def _draw() -> float:
    import random  # Not at the top: only the pause before a retry needs it, and it imports hashlib.

    return random.random()
