"""Commands in flight: numbered, sent to the leader, and sent again until applied here or timed out.

Commands submitted in one turn of the loop are sent together. A command is complete when this replica applies it, not
when the leader reports it committed. Once `execute` returns, the local state already contains the result.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final, Protocol

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft.library.driver.leadership import LeadershipView
from klamm.raft.library.driver.network import UnreachableError
from klamm.raft.library.entries import CLIENT_BYTES, encode_command, encode_open
from klamm.raft.library.errors import CommandRefusedError, NoLeaderError, OutcomeUnknownError
from klamm.raft.library.sessions import Applied, CommandStatus, Outcome, ReplicatedState
from klamm.raft.ports import NotLeaderError, RaftStoppedError

COMMAND_BYTES_MAX: Final = 4 << 20
BATCH_BYTES_MAX: Final = 4 << 20
SWEEP_MS: Final = 50
# Most losses are reported at once; this covers requests that are lost without a report.
RESEND_MS: Final = 1_000
RETRY_MS: Final = 20


class Appender(Protocol):
    """Puts records into the log."""

    def append(self, records: Sequence[bytes]) -> None:
        """As the leader. Raises NotLeaderError, RaftStoppedError."""

    async def forward(self, leader_id: int, records: Sequence[bytes]) -> None:
        """Have the leader append them. Raises NotLeaderError, UnreachableError."""


class Answer(Protocol):
    """The part of a future that is needed."""

    def done(self) -> bool:
        """Whether it has an outcome, or its caller was cancelled."""

    def cancelled(self) -> bool:
        """Whether its caller was cancelled."""

    def set_result(self, result: bytes, /) -> None:
        """The command's result."""

    def set_exception(self, error: Exception, /) -> None:
        """The command's error."""


class _Pending:
    __slots__ = ("client", "deadline_ms", "future", "payload", "sent_ms", "sequence", "times_sent")

    def __init__(self, sequence: int, payload: bytes, future: Answer, deadline_ms: int) -> None:
        self.sequence, self.payload, self.future, self.deadline_ms = sequence, payload, future, deadline_ms
        self.client = b""
        self.times_sent = 0
        self.sent_ms = 0


class Commands:
    """The commands of one replica's callers."""

    def __init__(
        self, appender: Appender, leadership: LeadershipView, state: ReplicatedState, *, in_flight_max: int
    ) -> None:
        self._appender, self._leadership, self._state = appender, leadership, state
        self._in_flight_max = in_flight_max
        self._clock = LoopClock()
        self._now_ms, self._loop = self._clock.now_ms, self._clock.loop
        self._client = os.urandom(CLIENT_BYTES)
        self._next_sequence = 1
        self._pending: dict[int, _Pending] = {}  # by sequence, ascending
        self._unsent: dict[int, _Pending] = {}
        self._is_scheduled = False
        self._sweep_timer = DeadlineTimer(self._clock, lambda at_ms: self._sweep())
        self._retry_timer = DeadlineTimer(self._clock, lambda at_ms: self._schedule())
        self._forwarding: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._fault: Exception | None = None

    async def room(self) -> None:
        """Return when another command may be submitted."""
        while self.is_full and self._fault is None:
            self._room.clear()
            await self._room.wait()

    @property
    def is_full(self) -> bool:
        """Whether `room` would wait."""
        return len(self._pending) >= self._in_flight_max

    def submit(self, payload: bytes, timeout_s: float, answer: Answer) -> None:
        """Send a command; `answer` receives its result. See `Replica.execute`."""
        if self._fault is not None:
            raise RaftStoppedError(str(self._fault))
        if len(payload) > COMMAND_BYTES_MAX:
            raise ValueError(f"a command of {len(payload)} bytes: {COMMAND_BYTES_MAX} are the most")
        pending = _Pending(self._next_sequence, payload, answer, self._now_ms() + int(timeout_s * 1000))
        self._next_sequence += 1
        self._pending[pending.sequence] = self._unsent[pending.sequence] = pending
        self._schedule()
        if not self._sweep_timer.is_armed:
            self._sweep_timer.arm_in(SWEEP_MS)

    # Sending

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Send the unsent commands to the leader; without a leader they wait."""
        self._is_scheduled = False
        leader = self._leadership.current
        if not self._unsent or leader.leader_id is None or self._fault is not None:
            return
        batch, self._unsent = self._unsent, {}
        records = self._records_of(batch)
        try:
            if leader.is_self:
                for records_together in _in_batches(records):
                    self._appender.append(records_together)
            else:
                self._forward(leader.leader_id, batch, records)
        except NotLeaderError:
            self._unsent = batch | self._unsent
            self._retry_soon()
        except RaftStoppedError as error:
            self.stop(error)

    def _records_of(self, batch: dict[int, _Pending]) -> list[bytes]:
        records = [] if self._state.has_session(self._client) else [encode_open(self._client)]
        answered_below, now_ms, client = next(iter(self._pending)), self._now_ms(), self._client
        for sequence, pending in batch.items():
            pending.client, pending.sent_ms = client, now_ms
            pending.times_sent += 1
            records.append(encode_command(client, sequence, answered_below, pending.payload))
        return records

    def _forward(self, leader_id: int, batch: dict[int, _Pending], records: list[bytes]) -> None:
        task = self._loop.create_task(self._forward_all(leader_id, batch, records))
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)

    async def _forward_all(self, leader_id: int, batch: dict[int, _Pending], records: list[bytes]) -> None:
        try:
            for records_together in _in_batches(records):
                await self._appender.forward(leader_id, records_together)
        except (NotLeaderError, UnreachableError):
            self._send_again(batch)
            self._retry_soon()

    def _send_again(self, batch: dict[int, _Pending]) -> None:
        again = {sequence: pending for sequence, pending in batch.items() if sequence in self._pending}
        self._unsent = dict(sorted((again | self._unsent).items()))

    def _retry_soon(self) -> None:
        self._retry_timer.arm_in(RETRY_MS)

    def on_leader_change(self) -> None:
        """Commands sent to the former leader may be lost: send all of them to this one."""
        self._send_again(self._pending)
        self._schedule()

    # Outcomes

    def on_applied(self, applied: Applied) -> None:
        """A command was applied; if it is one of ours, its caller gets the result."""
        pending = self._pending.get(applied.sequence)
        if pending is None or pending.client != applied.client or applied.outcome is None:
            return
        self._settle(pending, applied.outcome)

    def on_restored(self) -> None:
        """A snapshot has replaced commands that were not applied here one by one."""
        for pending in list(self._pending.values()):
            outcome = self._state.outcome_of(pending.client, pending.sequence)
            if outcome is not None:
                self._settle(pending, outcome)

    def _settle(self, pending: _Pending, outcome: Outcome) -> None:
        if outcome.fate is CommandStatus.NO_SESSION:
            self._on_lost_session(pending)
            return
        self._take(pending)
        if pending.future.done():
            return
        if outcome.fate is CommandStatus.REFUSED:
            pending.future.set_exception(CommandRefusedError(outcome.data.decode()))
        else:
            pending.future.set_result(outcome.data)

    def _on_lost_session(self, pending: _Pending) -> None:
        """The session was lost: commands sent once were not applied; the outcome of the others is unknown."""
        if pending.client == self._client:
            self._client = os.urandom(CLIENT_BYTES)
        if pending.times_sent > 1:
            self._take(pending)
            _fail(pending, OutcomeUnknownError("the session was forgotten while the command was sent again"))
            return
        self._send_again({pending.sequence: pending})
        self._schedule()

    def _take(self, pending: _Pending) -> None:
        self._pending.pop(pending.sequence, None)
        self._unsent.pop(pending.sequence, None)
        self._room.set()

    # Time and end

    def _sweep(self) -> None:
        """Give up commands that have timed out, and send overdue ones again."""
        now_ms, late = self._now_ms(), {}
        for pending in list(self._pending.values()):
            if pending.future.cancelled():
                self._take(pending)
            elif pending.deadline_ms <= now_ms:
                self._take(pending)
                _fail(pending, self._out_of_time(pending))
            elif pending.times_sent > 0 and pending.sent_ms + RESEND_MS <= now_ms:
                late[pending.sequence] = pending
        if late:
            self._send_again(late)
        if self._unsent:
            self._schedule()
        if self._pending:
            self._sweep_timer.arm_in(SWEEP_MS)

    def _out_of_time(self, pending: _Pending) -> Exception:
        leader = self._leadership.current
        who = f"replica {leader.leader_id} leads epoch {leader.epoch}"
        known = who if leader.leader_id is not None else f"no leader is known (epoch {leader.epoch})"
        if pending.times_sent == 0:
            return NoLeaderError(f"nothing was sent, and nothing has changed: {known}; is a majority of voters up?")
        return OutcomeUnknownError(f"the command was sent and no result came in time: {known}; read the state")

    def stop(self, fault: Exception) -> None:
        """The replica stops: fail all waiting commands."""
        if self._fault is not None:
            return
        self._fault = fault
        self._sweep_timer.cancel()
        self._retry_timer.cancel()
        for task in self._forwarding:
            task.cancel()
        for pending in list(self._pending.values()):
            self._take(pending)
            _fail(pending, fault)
        self._room.set()


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)


def _in_batches(records: list[bytes]) -> list[list[bytes]]:
    """The records in their order, in pieces that a batch of the log has room for."""
    pieces: list[list[bytes]] = [[]]
    size = 0
    for record in records:
        size += len(record) + 32
        if size > BATCH_BYTES_MAX and pieces[-1]:
            pieces.append([])
            size = len(record)
        pieces[-1].append(record)
    return pieces
