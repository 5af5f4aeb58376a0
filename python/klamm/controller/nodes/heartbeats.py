"""Heartbeats of brokers: the states of a broker at the controller, their table, and sessions.

A heartbeat carries the state that the broker requests. Current and requested state select a row, and the row's guard
selects one of two next states (`BrokerHeartbeatManager.calculateNextBrokerState`). None of this is in the metadata log:
a new active controller starts again from the registrations.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Self

from klamm.protocol.messages.registration import BrokerHeartbeatRequest
from klamm.protocol.value import Value


class BrokerControlState(enum.Enum):
    """A broker as the active controller sees it."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()


class RequestedState(enum.Enum):
    """The state that a heartbeat requests, from WantFence and WantShutDown."""

    RUN = (False, False)
    FENCE = (True, False)
    SHUT_DOWN = (False, True)
    FENCE_AND_SHUT_DOWN = (True, True)

    @classmethod
    def of(cls, request: BrokerHeartbeatRequest) -> Self:
        """The state that a heartbeat requests."""
        return cls((request.want_fence, request.want_shut_down))


class Guard(enum.Enum):
    """The condition of the first of a row's two next states."""

    ALWAYS = "always"
    CAUGHT_UP = "has replayed its own registration"
    LEADS_NOTHING = "leads no partition"
    MOVED_AWAY = "leads no partition, and every active broker has replayed the moves"


class Row(Value):
    """The next state when the guard holds, and the one when it does not."""

    guard: Guard
    then: BrokerControlState
    otherwise: BrokerControlState


_F, _U, _C, _S = BrokerControlState


def _always(state: BrokerControlState) -> Row:
    return Row(Guard.ALWAYS, state, state)


NEXT_STATES: Final[Mapping[tuple[BrokerControlState, RequestedState], Row]] = {
    (_F, RequestedState.RUN): Row(Guard.CAUGHT_UP, _U, _F),
    (_F, RequestedState.FENCE): _always(_F),
    (_F, RequestedState.SHUT_DOWN): _always(_S),
    (_F, RequestedState.FENCE_AND_SHUT_DOWN): _always(_S),
    (_U, RequestedState.RUN): _always(_U),
    (_U, RequestedState.FENCE): _always(_F),
    (_U, RequestedState.SHUT_DOWN): Row(Guard.LEADS_NOTHING, _S, _C),
    (_U, RequestedState.FENCE_AND_SHUT_DOWN): _always(_S),
    # A controlled shutdown cannot be revoked by the broker.
    (_C, RequestedState.RUN): Row(Guard.MOVED_AWAY, _S, _C),
    (_C, RequestedState.FENCE): Row(Guard.MOVED_AWAY, _S, _C),
    (_C, RequestedState.SHUT_DOWN): Row(Guard.MOVED_AWAY, _S, _C),
    (_C, RequestedState.FENCE_AND_SHUT_DOWN): Row(Guard.MOVED_AWAY, _S, _C),
    # Its fencing is written already; a late heartbeat receives the same response again.
    (_S, RequestedState.RUN): _always(_S),
    (_S, RequestedState.FENCE): _always(_S),
    (_S, RequestedState.SHUT_DOWN): _always(_S),
    (_S, RequestedState.FENCE_AND_SHUT_DOWN): _always(_S),
}
"""Current and requested state to the next state. SHUTDOWN_NOW is only a response: the broker is FENCED in the log."""


def printed_table() -> str:
    """The table in Markdown, for ARCHITECTURE.md."""
    lines = ["| state | requested | guard | then | otherwise |", "|---|---|---|---|---|"]
    for (state, requested), row in NEXT_STATES.items():
        otherwise = "" if row.guard is Guard.ALWAYS else row.otherwise.name
        lines.append(f"| {state.name} | {requested.name} | {row.guard.value} | {row.then.name} | {otherwise} |")
    return "\n".join(lines) + "\n"


NO_OFFSET: Final = -1
LONG_AGO_MS: Final = -(1 << 62)
EVERYTHING_REPLAYED: Final = (1 << 63) - 1


class BrokerHeartbeatState:
    """One broker. `controlled_shutdown_offset` is -1 while it does not shut down."""

    __slots__ = ("controlled_shutdown_offset", "is_fenced", "metadata_offset")

    def __init__(self, is_fenced: bool) -> None:
        self.is_fenced = is_fenced
        self.metadata_offset = NO_OFFSET
        self.controlled_shutdown_offset = NO_OFFSET

    @property
    def state(self) -> BrokerControlState:
        """The row of the table for its next heartbeat."""
        if self.controlled_shutdown_offset >= 0:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.FENCED if self.is_fenced else BrokerControlState.UNFENCED


class BrokerHeartbeats:
    """The brokers' states and the last contact of each (id, epoch)."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms: Final = session_timeout_ms
        self._brokers: dict[int, BrokerHeartbeatState] = {}
        self._contacts_ms: dict[tuple[int, int], int] = {}

    def register(self, broker_id: int, is_fenced: bool) -> None:
        """Track a broker, or correct its fencing state."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            self._brokers[broker_id] = BrokerHeartbeatState(is_fenced)
        else:
            offset = NO_OFFSET if broker.is_fenced == is_fenced else broker.metadata_offset
            self.touch(broker_id, is_fenced, offset)

    def touch(self, broker_id: int, is_fenced: bool, metadata_offset: int) -> None:
        """Record a heartbeat's outcome; a broker that is fenced leaves controlled shutdown."""
        broker = self._brokers[broker_id]
        broker.is_fenced = is_fenced
        broker.metadata_offset = metadata_offset
        if is_fenced:
            broker.controlled_shutdown_offset = NO_OFFSET

    def remove(self, broker_id: int) -> None:
        """Forget a broker that is unregistered or replaced by a new incarnation."""
        self._brokers.pop(broker_id, None)

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """The moves of its leaderships end at `offset`; a later, higher offset does not postpone the shutdown."""
        broker = self._brokers[broker_id]
        assert not broker.is_fenced, f"broker {broker_id} is fenced and cannot begin a controlled shutdown"
        if broker.controlled_shutdown_offset < 0:
            broker.controlled_shutdown_offset = offset

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether the broker must get no new partitions."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.controlled_shutdown_offset >= 0

    def lowest_active_offset(self) -> int:
        """The lowest offset that an active broker has reported; without active brokers there is none to wait for."""
        active = (b.metadata_offset for b in self._brokers.values() if b.state is BrokerControlState.UNFENCED)
        return min(active, default=EVERYTHING_REPLAYED)

    def next_state(
        self, request: BrokerHeartbeatRequest, registration_offset: int, leads_any: bool
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """The current and the next state after `request` of a registered broker."""
        broker = self._brokers[request.broker_id]
        row = NEXT_STATES[broker.state, RequestedState.of(request)]
        match row.guard:
            case Guard.ALWAYS:
                holds = True
            case Guard.CAUGHT_UP:
                holds = request.current_metadata_offset >= registration_offset
            case Guard.LEADS_NOTHING:
                holds = not leads_any
            case Guard.MOVED_AWAY:
                holds = not leads_any and broker.controlled_shutdown_offset <= self.lowest_active_offset()
        return broker.state, row.then if holds else row.otherwise

    def contact(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """The broker of this epoch sent a heartbeat; its session restarts."""
        self._contacts_ms[broker_id, epoch] = now_ms

    def has_valid_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this epoch sent a heartbeat within the session timeout."""
        contact_ms = self._contacts_ms.get((broker_id, epoch))
        return contact_ms is not None and not self._is_expired(contact_ms, now_ms)

    def pop_expired(self, now_ms: int) -> tuple[int, int] | None:
        """Remove one (id, epoch) whose session has expired, the longest silent first."""
        if not self._contacts_ms:
            return None
        oldest = min(self._contacts_ms, key=self._contacts_ms.__getitem__)
        if not self._is_expired(self._contacts_ms[oldest], now_ms):
            return None
        del self._contacts_ms[oldest]
        return oldest

    def end_session(self, broker_id: int, epoch: int) -> bool:
        """End the session of an epoch, if there is one: the next `pop_expired` returns it."""
        if (broker_id, epoch) not in self._contacts_ms:
            return False
        self._contacts_ms[broker_id, epoch] = LONG_AGO_MS
        return True

    def _is_expired(self, contact_ms: int, now_ms: int) -> bool:
        return contact_ms + self.session_timeout_ms < now_ms
