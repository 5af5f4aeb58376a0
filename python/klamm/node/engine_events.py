"""The events of the engine: each goes to the part of the node that it concerns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from klamm._engine.node import (
    AckedEvent,
    AutoCreateEvent,
    CommitEvent,
    ConnectionClosedEvent,
    DirectoriesChangedEvent,
    DirFailedEvent,
    Engine,
    IsrChangedEvent,
    LogEvent,
    RequestEvent,
    ShareStateEvent,
    VerifyEvent,
)
from klamm.broker.request import RequestContext, monotonic_ms
from klamm.driving.deadlines import Deadlines
from klamm.node.requests.dispatch import Dispatcher
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from klamm._engine.node import EngineEvent
    from klamm.node.broker_part import BrokerPart
    from klamm.node.controller.broker_probes import BrokerProbes
    from klamm.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

log = logging.getLogger("klamm.node")

EVENTS_AT_ONCE: Final = 16
TURN_NS: Final = 1_000_000
"""The time for events in one turn of the event loop, before timers and responses have their turn.

A task that waited for a timer runs in the second turn after the one in which the timer is due: it may be late by three
of these times."""
LOST_EVENT_PAUSE_MS: Final = 1_000
"""The pause before a failed log directory is reported to the controller again."""
AUTO_CREATE_VERSION: Final = 7
"""Of CreateTopics."""
LOG_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

CreateTopics = Callable[[RequestContext, "CreateTopicsRequest"], "Awaitable[CreateTopicsResponse]"]


class EngineEvents:
    """Takes the events when the engine's descriptor is readable."""

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        deadlines: Deadlines,
        *,
        broker: Callable[[], BrokerPart],
        broker_probes: Callable[[], BrokerProbes | None],
        create_topics: CreateTopics,
        create_timeout_ms: int,
        on_log_dir_failed: Callable[[bytes], None],
    ) -> None:
        """`create_topics` handles a CreateTopics for a client that asked for topics that do not exist."""
        self._engine, self._dispatcher, self._deadlines = engine, dispatcher, deadlines
        self._broker, self._broker_probes = broker, broker_probes
        self._create_topics, self._create_timeout_ms = create_topics, create_timeout_ms
        self._on_log_dir_failed = on_log_dir_failed
        self._drained: deque[EngineEvent] = deque()
        """Events taken from the engine that the last turn had no time to process."""
        self._next_turn: asyncio.Handle | None = None
        """The continuation of a turn whose time was over."""

    def on_readable(self) -> None:
        """Process the events that are due, unless the turn that has begun with others continues with them."""
        if self._next_turn is None:
            self._take_turn()

    def _take_turn(self) -> None:
        """Process events for the time of a turn of the loop. One event may take longer: a large group's target."""
        end_ns, self._next_turn = time.perf_counter_ns() + TURN_NS, None
        for event in self._due():
            try:
                self._on_event(event)
            except Exception:  # an exception affects this event only
                log.exception("the node failed to process a %s of the engine", type(event).__name__)
                self._on_lost_event(event)
            if time.perf_counter_ns() >= end_ns:
                self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)
                return

    def _due(self) -> Iterator[EngineEvent]:
        """The events that the last turn has left, and then those of the engine."""
        drained, is_last = self._drained, False
        while True:
            while drained:
                yield drained.popleft()
            if is_last:
                return  # the descriptor becomes readable with the next event
            drained.extend(self._engine.drain(EVENTS_AT_ONCE))
            is_last = len(drained) < EVENTS_AT_ONCE

    def close(self) -> None:
        """Process no more events, and release the waiters of events that were taken but not processed."""
        if self._next_turn is not None:
            self._next_turn.cancel()
        while self._drained:
            event = self._drained.popleft()
            self._log(event) if isinstance(event, LogEvent) else self._on_lost_event(event)

    def log_rest(self) -> None:
        """Log the remaining events of an engine that has stopped. It can process no requests any more."""
        while events := self._engine.drain(EVENTS_AT_ONCE):
            for event in events:
                if isinstance(event, LogEvent):
                    self._log(event)

    @staticmethod
    def _log(event: LogEvent) -> None:
        log.log(LOG_LEVELS[event.level], event.message)

    def _on_lost_event(self, event: EngineEvent) -> None:
        """Release what waits for an event that failed. Never raises.

        A client repeats the request for a topic that was not created.
        """
        try:
            self._release(event)
        except Exception:  # the events after it are processed all the same
            log.exception("what waits for a %s of the engine could not be released", type(event).__name__)

    def _release(self, event: EngineEvent) -> None:
        match event:
            case RequestEvent() | CommitEvent():
                self._dispatcher.answer(event.handle, None)
            case AckedEvent():
                self._broker().appends.on_acked(event.token, None)
            case VerifyEvent():
                self._engine.on_verified([(event.handle, [ErrorCode.COORDINATOR_NOT_AVAILABLE])])
            case ShareStateEvent():
                self._engine.share_states_answered([(event.request_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")])
            case DirFailedEvent():
                self._deadlines.add(LOST_EVENT_PAUSE_MS, partial(self._on_log_dir_failed, event.directory_id))
            case IsrChangedEvent():
                self._deadlines.add(LOST_EVENT_PAUSE_MS, self._broker().isr_updates.send)
            case DirectoriesChangedEvent():
                self._deadlines.add(LOST_EVENT_PAUSE_MS, self._broker().report_directories)

    def _on_event(self, event: EngineEvent) -> None:
        match event:
            case RequestEvent():
                if event.on_controller and (probes := self._broker_probes()) is not None:
                    probes.on_request(event)
                self._dispatcher.dispatch(event.handle, _context_of(event), event.body)
            case CommitEvent():
                self._dispatcher.commit(event.handle, event.address, event.request)
            case AckedEvent():
                self._broker().appends.on_acked(event.token, event.error_code)
            case VerifyEvent():
                self._broker().transactions.on_verify(event)
            case ShareStateEvent():
                self._broker().share_states.on_call(event)
            case AutoCreateEvent():
                self._auto_create(event)
            case DirFailedEvent():
                self._on_log_dir_failed(event.directory_id)
            case IsrChangedEvent():
                self._broker().isr_updates.send()
            case DirectoriesChangedEvent():
                self._broker().report_directories()
            case ConnectionClosedEvent():
                if (probes := self._broker_probes()) is not None:
                    probes.on_closed(event.connection_id)
            case LogEvent():
                self._log(event)

    def _auto_create(self, event: AutoCreateEvent) -> None:
        arrived_ms = monotonic_ms()
        deadline_ms = arrived_ms + self._create_timeout_ms
        for name, principal, client_id, address in event.topics:
            context = RequestContext(
                connection_id=0,
                api_key=ApiKey.CREATE_TOPICS,
                api_version=AUTO_CREATE_VERSION,
                client_id=client_id,
                listener="",
                principal=_principal_of(principal),
                address=address,
                on_controller=False,
                arrived_ms=arrived_ms,
                deadline_ms=deadline_ms,
            )
            self._broker().auto_create(name, partial(self._create_topics, context))


def _context_of(event: RequestEvent) -> RequestContext:
    principal, arrived_ms = event.principal, monotonic_ms() - event.age_ms
    return RequestContext(
        event.connection_id,
        event.api_key,
        event.api_version,
        event.client_id,
        event.listener,
        _principal_of(principal),
        event.address,
        event.on_controller,
        arrived_ms,
        arrived_ms + event.timeout_ms,
    )


def _principal_of(parts: tuple[str, str, bool] | None) -> Principal:
    return ANONYMOUS if parts is None else Principal(*parts)
