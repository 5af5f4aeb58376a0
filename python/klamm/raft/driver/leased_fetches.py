"""Fetches that a leader answers without its core: the core grants the engine a lease and is notified afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm._engine import quorum
from klamm.driving.clock import LoopClock
from klamm.raft.effects import (
    AppendControl,
    AppendFetched,
    Effect,
    InstallSnapshot,
    LostLeadership,
    PersistElection,
    TruncateLog,
)
from klamm.raft.ports import FetchAnswers
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import ReplicaKey

logger = logging.getLogger("klamm.raft")

# Effects that change the log, the vote, the leader or the voters.
_CHANGES = (PersistElection, AppendControl, AppendFetched, TruncateLog, InstallSnapshot, LostLeadership)


class LeasedFetches:
    """Grants the core's lease to the engine, and revokes it before a change that invalidates it.

    Must be created and used on the loop's thread.
    """

    def __init__(
        self,
        open_answers: Callable[[], FetchAnswers] | None,
        fetch_lease: Callable[[], FetchLease | None],
        counts: Callable[[ReplicaKey], bool],
        on_wakeup: Callable[[], None],
    ) -> None:
        """`open_answers` is called at the first fetch that may be leased; without it none is.

        `fetch_lease` and `counts` ask the core; `on_wakeup` is called when it must be notified at once.
        """
        self._open_answers, self._fetch_lease, self._counts, self._on_wakeup = (
            open_answers,
            fetch_lease,
            counts,
            on_wakeup,
        )
        self._loop = asyncio.get_running_loop()
        self._opened: FetchAnswers | None = None
        self._by: FetchLease | None = None
        self._left: tuple[int, list[LeasedFetch]] | None = None
        self._has_warned = False  # that there is no lease
        self._must_notify_voters = self._must_offer = False

    @property
    def is_on(self) -> bool:
        """Whether a lease is granted, or the core has not been notified of fetches that were taken."""
        return self._by is not None or self._left is not None

    def on_fetch(self, replica: ReplicaKey) -> None:
        """The core has answered that replica, or lets it wait: from now on a lease covers its fetches."""
        by = self._fetch_lease() if self._open_answers is not None else None
        if by is None or self._left is not None:  # the core must know of the earlier fetches first
            return
        answers = self._answers()
        if answers is None:
            return
        if self._by is None:
            answers.begin(by)
            self._by = by
        answers.add_replica(replica, counts=self._counts(replica))

    def take(self) -> tuple[int, list[LeasedFetch]] | None:
        """The fetches that the core has not been notified of: the epoch, and the fetches in order."""
        left, self._left = self._left, None
        if left is not None or self._by is None or self._opened is None:
            return left
        taken = self._opened.take()
        return (self._by.epoch, taken) if taken else None

    def revoke_before(self, effects: list[Effect]) -> None:
        """Revoke the lease before effects that invalidate it."""
        if self._by is not None and any(isinstance(effect, _CHANGES) for effect in effects):
            self.revoke()

    def revoke_if_outdated(self) -> None:
        """Revoke a lease that the core would not grant again."""
        if self._by is None:
            return
        by = self._fetch_lease()
        if by is None or _terms(by) != _terms(self._by):
            self.revoke()

    def raise_high_watermark(self, offset: int) -> None:
        """Raise the high watermark of the answers to the core's."""
        if self._by is not None and self._opened is not None:
            self._opened.raise_high_watermark(offset)
            self._must_notify_voters = True

    def on_append(self) -> None:
        """Offer appended records to the voters at the end of this turn of the loop, together with its other appends."""
        if self._by is not None and not self._must_offer:
            self._must_offer = True
            self._loop.call_soon(self._offer)

    def notify_voters(self) -> None:
        """The responses to observers were sent: voters may receive the new high watermark now, too."""
        if self._must_notify_voters and self._opened is not None:
            self._opened.notify_voters()
        self._must_notify_voters = False

    def revoke(self) -> None:
        """Revoke the lease. The core must still be notified of the fetches that were taken."""
        by, self._by = self._by, None
        if by is not None and self._opened is not None:
            taken = self._opened.end()
            if taken:
                self._left = by.epoch, taken
                self._loop.call_soon(self._notify_of_left)  # something may be committed by it

    def close(self) -> None:
        """Revoke the lease; no other is granted."""
        self.revoke()
        self._left = self._open_answers = None
        if self._opened is not None:
            self._loop.remove_reader(self._opened.fd)

    def _answers(self) -> FetchAnswers | None:
        if self._opened is None and self._open_answers is not None:
            try:
                opened = self._open_answers()
                self._loop.add_reader(opened.fd, self._on_readable)
            except Exception as error:  # the core answers them without: no descriptor is free, say
                if not self._has_warned:
                    self._has_warned = True
                    logger.warning("fetches are answered one by one: %s", error)
                return None
            self._opened = opened
        return self._opened

    def _offer(self) -> None:
        self._must_offer = False
        if self._by is not None and self._opened is not None:
            self._opened.offer()

    def _on_readable(self) -> None:
        if self._opened is not None and self._opened.has_news:  # else an earlier step has reported it
            self._on_wakeup()

    def _notify_of_left(self) -> None:
        if self._left is not None:
            self._on_wakeup()


def _terms(by: FetchLease) -> tuple[object, ...]:
    """The part of a lease that must not change while it is granted; the answers themselves change the rest."""
    return by.epoch, by.voters_in_log, by.counts_itself, by.leader_endpoints


class NativeFetchAnswers:
    """Implements `klamm.raft.ports.FetchAnswers` over `_engine.quorum.FetchAnswers`."""

    def __init__(self, native: quorum.FetchAnswers, key: ReplicaKey, cluster_id: str, take_timeout_ms: int) -> None:
        """`key`: the answering replica. After `take_timeout_ms` without reading news, nothing more is answered."""
        self._native, self._key, self._cluster_id, self._take_timeout_ms = native, key, cluster_id, take_timeout_ms
        self._clock = LoopClock()
        self._known: list[ReplicaKey] = []

    @property
    def fd(self) -> int:
        """See `klamm.raft.ports.FetchAnswers.fd`."""
        return self._native.fd

    @property
    def has_news(self) -> bool:
        """See `klamm.raft.ports.FetchAnswers.has_news`."""
        return self._native.has_news

    def begin(self, by: FetchLease) -> None:
        """See `klamm.raft.ports.FetchAnswers.begin`."""
        self._known = []
        self._native.begin(
            cluster_id=self._cluster_id,
            leader_id=self._key.id,
            epoch=by.epoch,
            start_offset=by.epoch_start_offset,
            high_watermark=by.high_watermark,
            voters=by.voters,
            counts_itself=by.counts_itself,
            endpoints=by.leader_endpoints,
            take_timeout_ms=self._take_timeout_ms,
        )

    def add_replica(self, replica: ReplicaKey, *, counts: bool) -> None:
        """See `klamm.raft.ports.FetchAnswers.add_replica`."""
        if replica.id == self._key.id:  # a leader fetches from no replica: a request under its id is refused
            return
        number = self._native.add_replica(replica.id, replica.directory_id, counts)
        if number == len(self._known):
            self._known.append(replica)

    def offer(self) -> None:
        """See `klamm.raft.ports.FetchAnswers.offer`."""
        self._native.offer()

    def raise_high_watermark(self, offset: int) -> None:
        """See `klamm.raft.ports.FetchAnswers.raise_high_watermark`."""
        self._native.raise_high_watermark(offset)

    def notify_voters(self) -> None:
        """See `klamm.raft.ports.FetchAnswers.notify_voters`."""
        self._native.notify_voters()

    def take(self) -> list[LeasedFetch]:
        """See `klamm.raft.ports.FetchAnswers.take`."""
        return self._fetches(self._native.take())

    def end(self) -> list[LeasedFetch]:
        """See `klamm.raft.ports.FetchAnswers.end`."""
        return self._fetches(self._native.end())

    def _fetches(self, rows: list[tuple[int, int, int, int]]) -> list[LeasedFetch]:
        if not rows:
            return []
        now_ms = self._clock.now_ms()
        return [
            LeasedFetch(now_ms - age_ms, self._known[number], fetch_offset, end_offset)
            for number, fetch_offset, end_offset, age_ms in rows
        ]
