"""Runs the broker's life cycle against the controller of this node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from klamm.broker.lifecycle import BrokerLifecycle, BrokerState, Heartbeat, Register
from klamm.controller.operations.nodes import BROKER_HEARTBEAT, BROKER_REGISTRATION
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
"""A heartbeat that is so late was not kept back by a loop with much to do, but by a process that did not run."""
FAILED_PAUSE_S: Final = 0.1
"""After an exception that was not foreseen, beside the core's own pause between requests."""

WAITS_FOR_METADATA: Final = (BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.PENDING_CONTROLLED_SHUTDOWN)

_Answer = TypeVar("_Answer", BrokerRegistrationResponse, BrokerHeartbeatResponse)


class Registration:
    """Registers the broker, keeps it alive, and takes it out of service again."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        controller: ControllerChannel,
        request: Callable[[], BrokerRegistrationRequest],
        applied_offset: Callable[[], int],
        on_fault: Callable[[Exception], None],
        *,
        ask_timeout_ms: int,
        log_dir_failure_timeout_ms: int,
        foreign_cluster: Callable[[], str | None] = lambda: None,
        is_majority_gone: Callable[[], bool] = lambda: False,
        on_pause: Callable[[int], None] = lambda pause_ms: None,
    ) -> None:
        """`ask_timeout_ms` bounds each request. `on_fault` receives what ends the exchange early, `on_pause` how long
        the process did not run.

        `foreign_cluster` says which controller answered as one of another cluster, where one did; `is_majority_gone`
        whether so many controllers refuse connections that the rest can elect nobody.
        """
        self._ask_timeout_ms = ask_timeout_ms
        self._is_majority_gone = is_majority_gone
        self._on_pause = on_pause
        self._foreign_cluster = foreign_cluster
        self._foreign_answer: str | None = None
        self._log_dir_failure_timeout_ms = log_dir_failure_timeout_ms
        self._acknowledged_log_dirs: tuple[bytes, ...] = ()
        self._on_fault = on_fault
        self._last_error = ""
        self._lifecycle = lifecycle
        self._controller = controller
        self._request = request
        self._applied_offset = applied_offset
        self._wake = asyncio.Event()
        self._published_meanwhile = False
        self._task: asyncio.Task[None] | None = None
        self.offline_log_dirs: tuple[bytes, ...] = ()
        self.registered = asyncio.Event()
        self.running = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before there is one."""
        return self._lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        """Where the life cycle stands."""
        return self._lifecycle.state

    def start(self) -> None:
        """Begin to register."""
        self._lifecycle.on_start(_now_ms())
        self._task = asyncio.ensure_future(self._run())

    def ready(self) -> None:
        """The broker can serve: ask to be unfenced."""
        self._lifecycle.on_ready(_now_ms())
        self._wake.set()

    def on_published(self) -> None:
        """More metadata was applied: what waits for that, to be caught up or to leave, need not wait for its time."""
        self._published_meanwhile = True
        if self._lifecycle.state in WAITS_FOR_METADATA and self.broker_epoch >= 0:
            self._lifecycle.deadline_ms = _now_ms()
            self._wake.set()

    def on_log_dir_failed(self, directory_id: bytes) -> None:
        """Tell the controller with the next heartbeat, which is due now."""
        self.offline_log_dirs = (*self.offline_log_dirs, directory_id)
        self._lifecycle.deadline_ms = _now_ms()
        self._wake.set()
        timeout_s = self._log_dir_failure_timeout_ms / 1000
        asyncio.get_running_loop().call_later(timeout_s, self._check_acknowledged, directory_id)

    def _check_acknowledged(self, directory_id: bytes) -> None:
        """A broker whose failed directory the controller does not know must not go on as a leader in it (facts 6.1)."""
        if directory_id in self._acknowledged_log_dirs or self._lifecycle.state is BrokerState.SHUTTING_DOWN:
            return
        self._on_fault(
            TimeoutError(
                f"the controller did not acknowledge within {self._log_dir_failure_timeout_ms} ms that a log directory "
                "failed (log.dir.failure.timeout.ms)"
            )
        )

    async def shut_down(self, timeout_s: float) -> None:
        """Controlled shutdown: waits for the controller's leave, `timeout_s` at most.

        Not at all while nobody could give it, unlike Apache Kafka, which waits all of its 5 minutes (ARCHITECTURE:
        evidence of death).
        """
        self._lifecycle.on_shutdown_asked(_now_ms())
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_ended_or_hopeless()
        except TimeoutError:
            text = "the controller gave no leave within %g s: this broker stops, and hands over nothing"
            log.warning(text, timeout_s)
        self.stop()

    async def _until_ended_or_hopeless(self) -> None:
        while not self._is_majority_gone():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), LOOK_S)
                return
        log.warning("most controllers refuse connections: this broker stops without leave, and hands over nothing")

    def stop(self) -> None:
        """End without asking."""
        self._lifecycle.on_give_up()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._lifecycle.state is not BrokerState.SHUTTING_DOWN:
            if self._lifecycle.registration_overdue(_now_ms()):
                self._on_fault(self._overdue())
                return
            try:
                await self._take_turn()
            except Exception as error:
                await self._pause_after(error)
        self.ended.set()

    def _overdue(self) -> TimeoutError:
        timeout_ms = self._lifecycle.registration_timeout_ms
        foreign = self._foreign_answer or self._foreign_cluster()
        return TimeoutError(
            f"no controller registered this broker within {timeout_ms} ms "
            "(initial.broker.registration.timeout.ms): "
            f"{foreign or 'see whether the controllers run and have a leader'}"
        )

    async def _take_turn(self) -> None:
        request = self._lifecycle.next_request(_now_ms())
        if request is None:
            await self._pause()
        else:
            await self._exchange(request)
        if self._lifecycle.state is BrokerState.RUNNING and not self.running.is_set():
            self.running.set()

    async def _pause_after(self, error: Exception) -> None:
        if repr(error) != self._last_error:  # each cause once
            self._last_error = repr(error)
            log.error("the exchange with the controller failed, and is repeated: %r", error, exc_info=error)
        self._lifecycle.on_failure(_now_ms())
        await asyncio.sleep(FAILED_PAUSE_S)

    async def _pause(self) -> None:
        deadline_ms = self._lifecycle.deadline_ms
        timeout_s = None if deadline_ms is None else max(0.0, (deadline_ms - _now_ms()) / 1000)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        late_ms = 0 if deadline_ms is None or self._wake.is_set() else _now_ms() - deadline_ms
        self._wake.clear()
        if late_ms >= LONG_PAUSE_MS:
            self._on_pause(late_ms)

    async def _exchange(self, request: Register | Heartbeat) -> None:
        match request:
            case Register():
                await self._register()
            case Heartbeat():
                await self._beat(request)

    async def _register(self) -> None:
        answer = await self._ask(self._controller.ask(BROKER_REGISTRATION, self._request(), self._ask_timeout_ms))
        if answer is not None:
            log.info("registered with broker epoch %d", answer.broker_epoch)
            self._lifecycle.on_registered(_now_ms(), answer.broker_epoch)
            self.registered.set()

    async def _beat(self, beat: Heartbeat) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._request().broker_id,
            broker_epoch=beat.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=beat.want_fence,
            want_shut_down=beat.want_shut_down,
            offline_log_dirs=self.offline_log_dirs,
        )
        self._published_meanwhile = False
        answer = await self._ask(self._controller.ask(BROKER_HEARTBEAT, request, self._ask_timeout_ms))
        if answer is not None:
            self._acknowledged_log_dirs = request.offline_log_dirs
            self._lifecycle.on_heartbeat_answer(
                _now_ms(),
                caught_up=answer.is_caught_up,
                fenced=answer.is_fenced,
                should_shut_down=answer.should_shut_down,
            )
            if self._published_meanwhile:
                self.on_published()  # an answer sets the next time, and its image may have been published by now

    async def _ask(self, asking: Awaitable[_Answer]) -> _Answer | None:
        answer = await asking
        if answer.error_code is ErrorCode.NONE:
            return answer
        if answer.error_code is ErrorCode.INCONSISTENT_CLUSTER_ID and self._foreign_answer is None:
            self._foreign_answer = (
                "the active controller is of another cluster (INCONSISTENT_CLUSTER_ID): this broker was formatted for "
                f"cluster.id {self._request().cluster_id}, as its meta.properties says"
            )
            log.error("%s", self._foreign_answer)
        log.info("the controller answered %s; asking again", answer.error_code.name)
        self._lifecycle.on_failure(_now_ms())
        return None


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def lifecycle(heartbeat_interval_ms: int, session_timeout_ms: int, registration_timeout_ms: int) -> BrokerLifecycle:
    """The core with this process's randomness."""
    return BrokerLifecycle(
        heartbeat_interval_ms=heartbeat_interval_ms,
        session_timeout_ms=session_timeout_ms,
        registration_timeout_ms=registration_timeout_ms,
        draw=_draw,
    )


def _draw() -> float:
    import random  # Not at the top: a node starts without hashlib, and only a failure is repeated after a drawn pause.

    return random.random()
