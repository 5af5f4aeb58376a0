"""Simulated threads of the network that answer a leader's fetches, as `_engine.quorum.FetchAnswers` does.

They record every fetch and compute the high watermark from it; the core is notified afterwards (`ports.FetchAnswers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from klamm.raft.effects import ReadRange
from klamm.raft.messages import Error, FetchRequest, FetchResponse
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.quorum import replicated_offset
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.raft.wire.requests import VERSIONS, decode_request, encode_request
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.memory_log import MemoryLog
from klamm.testing.simulator.replica_loop import Call

FD: Final = 4  # never read
API_KEY: Final = 1  # of Fetch
VERSION: Final = VERSIONS[API_KEY][1]
NOTED_MAX: Final = 16  # small, so that a leader that receives no progress for long is simulated


class HostProcess(Protocol):
    """The process, as the simulated threads use it."""

    log: MemoryLog

    @property
    def key(self) -> ReplicaKey:
        """The replica key."""

    def now_ms(self) -> int:
        """The process's clock."""

    def give(self, asked: Envelope, response: FetchResponse, read: ReadRange | None) -> None:
        """Send a response with these bytes of the log."""

    def pass_to_core(self, asked: Envelope) -> None:
        """Pass the request to the driver, now or a little later."""

    def call_later(self, delay_ms: int, act: Callable[[], None]) -> Call:
        """Call `act` later, if the process is still alive."""

    def make_readable(self, fd: int) -> None:
        """Make the descriptor readable for the driver's loop, now or a little later."""


@dataclass(slots=True)
class _Waiting:
    asked: Envelope
    request: FetchRequest
    high_watermark: int  # as the follower knows it, or as it was when the fetch arrived if that is less
    timeout: Call


class SimulatedAnswers:
    """Invariant: every waiting fetch was accepted since the last `begin`; none waits after `end`."""

    def __init__(self, surroundings: HostProcess, take_timeout_ms: int) -> None:
        """`take_timeout_ms`: if the process has not taken the progress for this long, no more fetches are answered."""
        self._process, self._take_timeout_ms = surroundings, take_timeout_ms
        self._by: FetchLease | None = None
        self._end_offsets: dict[int, int] = {}  # of the other voters
        self._known: set[ReplicaKey] = set()
        self._high_watermark = self._offered_high_watermark = -1
        self._offered = 0
        self._noted: list[LeasedFetch] = []
        self._waiting: list[_Waiting] = []
        self._has_news = False

    # For the driver

    @property
    def fd(self) -> int:
        """See `FetchAnswers.fd`."""
        return FD

    @property
    def has_news(self) -> bool:
        """See `FetchAnswers.has_news`."""
        return self._has_news

    def begin(self, by: FetchLease) -> None:
        """See `FetchAnswers.begin`."""
        self._by, self._known, self._end_offsets = by, set(), dict(by.voters)
        self._high_watermark = self._offered_high_watermark = by.high_watermark
        self._offered = self._process.log.end_offset

    def add_replica(self, replica: ReplicaKey, *, counts: bool) -> None:
        """See `FetchAnswers.add_replica`: a voter's former disk is for the core."""
        if replica.id >= 0 and replica.id != self._process.key.id and counts == (replica.id in self._end_offsets):
            self._known.add(replica)

    def offer(self) -> None:
        """See `FetchAnswers.offer`."""
        self._offered = self._process.log.end_offset
        self._look_again(voters=True)

    def raise_high_watermark(self, offset: int) -> None:
        """See `FetchAnswers.raise_high_watermark`."""
        if self._raise(offset):
            self._look_again(voters=False)

    def notify_voters(self) -> None:
        """See `FetchAnswers.notify_voters`."""
        if self._offered_high_watermark < self._high_watermark:
            self._offered_high_watermark = self._high_watermark
            self._look_again(voters=True)

    def take(self) -> list[LeasedFetch]:
        """See `FetchAnswers.take`."""
        noted, self._noted, self._has_news = self._noted, [], False
        return noted

    def end(self) -> list[LeasedFetch]:
        """See `FetchAnswers.end`."""
        self._by = None
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.timeout.cancel()
            self._process.pass_to_core(one.asked)
        return self.take()

    @property
    def high_watermark(self) -> int:
        """The high watermark, while a lease is held."""
        return self._high_watermark if self._by is not None else -1

    # The threads

    def on_fetch(self, asked: Envelope) -> bool:
        """Accept a fetch, and respond now or later; False if the core must handle it."""
        by = self._by
        if by is None or not isinstance(asked.request, FetchRequest):
            return False
        request = decode_request(API_KEY, VERSION, encode_request(asked.request, VERSION)).message
        if not isinstance(request, FetchRequest) or not self._is_plain(by, request):
            return False
        log, now_ms = self._process.log, self._process.now_ms()
        self._noted.append(LeasedFetch(now_ms, request.replica, request.fetch_offset, log.end_offset))
        if self._is_voter(request):
            self._end_offsets[request.replica.id] = request.fetch_offset
        has_advanced = self._advance(by)
        known = min(request.high_watermark, self._high_watermark)
        if request.max_wait_ms == 0 or self._is_due(request, request.high_watermark):
            self._answer(by, asked, request)
        else:
            waiting: list[_Waiting] = []
            timeout = self._process.call_later(request.max_wait_ms, lambda: self._end_wait(waiting[0]))
            waiting.append(_Waiting(asked, request, known, timeout))
            self._waiting += waiting
        if has_advanced or len(self._noted) == NOTED_MAX // 2:
            self._note_news()
        if has_advanced:
            self._look_again(voters=False)
        return True

    def on_flushed(self, offset: int) -> None:
        """This replica's own log is durable up to that offset."""
        if self._by is not None and self._advance(self._by):
            self._note_news()
            self._look_again(voters=False)

    def _is_plain(self, by: FetchLease, request: FetchRequest) -> bool:
        is_of_epoch = request.epoch == request.last_fetched_epoch == by.epoch
        is_here = request.fetch_offset > by.epoch_start_offset and self._is_here(request.fetch_offset)
        is_known = request.replica in self._known and request.max_wait_ms >= 0
        return is_of_epoch and is_here and is_known and self._is_heard()

    def _is_here(self, offset: int) -> bool:
        log = self._process.log
        return offset == log.end_offset or log.start_offset < offset < log.end_offset

    def _is_heard(self) -> bool:
        """Whether the process takes the progress; otherwise followers must detect that it does not run."""
        is_fresh = not self._noted or self._process.now_ms() - self._noted[0].at_ms < self._take_timeout_ms
        return is_fresh and len(self._noted) < NOTED_MAX

    def _is_voter(self, request: FetchRequest) -> bool:
        return request.replica.id in self._end_offsets

    def _own_offset(self) -> int:
        return self._process.log.flushed_offset

    def _advance(self, by: FetchLease) -> bool:
        own = [self._own_offset()] if by.counts_itself else []
        replicated = replicated_offset([*self._end_offsets.values(), *own])
        return replicated > by.epoch_start_offset and self._raise(replicated)

    def _raise(self, offset: int) -> bool:
        is_more = offset > self._high_watermark
        self._high_watermark = max(self._high_watermark, offset)
        return is_more

    def _is_due(self, request: FetchRequest, known: int) -> bool:
        """Whether a response has something new: for voters more offered records, for others more committed ones."""
        is_voter = self._is_voter(request)
        end_offset = self._offered if is_voter else self._high_watermark
        reached = self._offered_high_watermark if is_voter else self._high_watermark
        return known < reached or request.fetch_offset < end_offset

    def _look_again(self, *, voters: bool) -> None:
        due = [
            one
            for one in self._waiting
            if self._is_voter(one.request) == voters and self._is_due(one.request, one.high_watermark)
        ]
        for one in due:
            self._end_wait(one)

    def _end_wait(self, one: _Waiting) -> None:
        if self._by is None or one not in self._waiting:
            return
        one.timeout.cancel()
        self._waiting.remove(one)
        if self._is_here(one.request.fetch_offset):
            self._answer(self._by, one.asked, one.request)
        else:
            self._process.pass_to_core(one.asked)

    def _answer(self, by: FetchLease, asked: Envelope, request: FetchRequest) -> None:
        log, offset = self._process.log, request.fetch_offset
        read = ReadRange(offset, request.max_bytes) if log.start_offset <= offset < log.end_offset else None
        response = FetchResponse(
            Error.NONE,
            by.epoch,
            self._process.key.id,
            high_watermark=self._high_watermark,
            log_start_offset=log.start_offset,
            leader_endpoints=by.leader_endpoints,
        )
        self._process.give(asked, response, read)

    def _note_news(self) -> None:
        self._has_news = True
        self._process.make_readable(FD)
