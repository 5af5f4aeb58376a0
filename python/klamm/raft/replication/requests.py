"""Requests to peers: one in flight to each, timeouts, and a back-off after a failure (`RequestManager`)."""

from typing import NamedTuple

from klamm.protocol.value import Value
from klamm.raft.config import RaftConfig
from klamm.raft.messages import FetchRequest, Request
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VotersInLog


class InFlight(NamedTuple):
    """A request that waits for its answer."""

    to: int
    correlation_id: int
    sent_ms: int
    request: Request
    may_stream: bool = False


class StreamedFetches(Value):
    """The progress of a streamed fetch since the last report to the core; see `effects.SendRequest`."""

    sent_ms: int
    heard_ms: int | None  # None: no answer came since then
    request: FetchRequest  # the one that was sent last
    high_watermark: int  # of the leader's last response


class LeasedFetch(NamedTuple):
    """A plain fetch of the epoch led that was taken without the core."""

    at_ms: int  # when it came
    replica: ReplicaKey
    fetch_offset: int
    leader_end_offset: int  # where the leader's log ended then


class FetchLease(Value):
    """Lets the driver answer plain fetches without the core: those of this epoch, from a position within it.

    It records them, computes the high watermark as the core does, and answers. `RaftNode.on_leased_fetches` notifies
    the core before any other event, so that it never decides without knowing of them.
    """

    epoch: int
    epoch_start_offset: int  # no high watermark of this epoch is at or below it
    high_watermark: int
    voters: tuple[tuple[int, int], ...]  # the others: node id, ascending, and end offset as known
    counts_itself: bool  # up to where its log is flushed
    voters_in_log: VotersInLog
    leader_endpoints: tuple[Endpoint, ...]


class Requests:
    """The connections of a replica as it sees them. An answer counts only while its request is known here."""

    def __init__(self, config: RaftConfig) -> None:
        self._config = config
        self._next_correlation_id = 0
        self._in_flight: dict[int, InFlight] = {}
        self._backing_off_until_ms: dict[int, int] = {}

    def begin(self, now_ms: int, to: int, request: Request, *, may_stream: bool = False) -> int:
        """Record a request to a peer that is ready; returns its correlation id, which is never used again."""
        self._next_correlation_id += 1
        self._in_flight[to] = InFlight(to, self._next_correlation_id, now_ms, request, may_stream)
        return self._next_correlation_id

    def end(self, correlation_id: int) -> InFlight | None:
        """Take the request that this answers; None when it was given up (time-out, change of role)."""
        for entry in self._in_flight.values():
            if entry.correlation_id == correlation_id:
                return self._in_flight.pop(entry.to)
        return None

    def is_waited_for(self, correlation_id: int) -> bool:
        """Whether the answer to that request still counts."""
        return any(entry.correlation_id == correlation_id for entry in self._in_flight.values())

    def streaming(self, now_ms: int, to: int) -> InFlight | None:
        """The fetch of that peer that may be streamed; None if there is none, or it timed out."""
        entry = self._in_flight.get(to)
        if entry is None or not entry.may_stream or entry.sent_ms + self._config.request_timeout_ms <= now_ms:
            return None
        return entry

    def renew(self, correlation_id: int, sent_ms: int, request: Request) -> InFlight | None:
        """That request continued: its last content and time; None when it was given up."""
        for to, entry in self._in_flight.items():
            if entry.correlation_id == correlation_id:
                self._in_flight[to] = renewed = entry._replace(sent_ms=sent_ms, request=request)
                return renewed
        return None

    def hear(self, now_ms: int, to: int) -> None:
        """The peer responded, on whichever connection: a request that timed out no longer counts against it."""
        entry = self._in_flight.get(to)
        if entry is not None and entry.sent_ms + self._config.request_timeout_ms <= now_ms:
            del self._in_flight[to]

    def back_off(self, now_ms: int, to: int) -> None:
        """Send nothing to that peer for `retry_backoff_ms`."""
        self._backing_off_until_ms[to] = now_ms + self._config.retry_backoff_ms

    def reset(self) -> None:
        """Drop all requests of an earlier role."""
        self._in_flight.clear()
        self._backing_off_until_ms.clear()

    def ready_at_ms(self, to: int) -> int:
        """When the next request may go to that peer; a time that has passed means now."""
        entry = self._in_flight.get(to)
        if entry is not None:
            return entry.sent_ms + self._config.request_timeout_ms
        return self._backing_off_until_ms.get(to, 0)

    def is_ready(self, now_ms: int, to: int) -> bool:
        """Whether a request may go there now."""
        return self.ready_at_ms(to) <= now_ms

    def silent_until_ms(self, now_ms: int, to: int) -> int:
        """The time until which other peers are asked instead of this one.

        It is skipped for as long as its timed-out request waited, or for a backoff after a failure.
        """
        entry, timeout_ms = self._in_flight.get(to), self._config.request_timeout_ms
        if entry is None:
            return self._backing_off_until_ms.get(to, 0)
        return entry.sent_ms + 2 * timeout_ms if entry.sent_ms + timeout_ms <= now_ms else 0

    def busy_until_ms(self, now_ms: int) -> int:
        """When the last request in flight times out; `now_ms` or less when none is."""
        if not self._in_flight:
            return now_ms
        last_ms = max(entry.sent_ms for entry in self._in_flight.values())
        return max(last_ms + self._config.request_timeout_ms, now_ms)
