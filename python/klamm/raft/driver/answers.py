"""Fetches that a leader answers without its core: the engine takes them, and the core hears of them afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm import _engine
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
from klamm.raft.replication.requests import Answerable, AnsweredFetch
from klamm.raft.voters.voter_set import ReplicaKey

logger = logging.getLogger("klamm.raft")

# What changes the log, the vote, or who leads by which voters.
_CHANGES = (PersistElection, AppendControl, AppendFetched, TruncateLog, InstallSnapshot, LostLeadership)


class Answered:
    """The engine's answers as the driver has them: begun for who fetches, and ended before anything changes.

    To be made and used on the loop's thread.
    """

    def __init__(
        self,
        open_answers: Callable[[], FetchAnswers] | None,
        answerable: Callable[[], Answerable | None],
        counts: Callable[[ReplicaKey], bool],
        on_news: Callable[[], None],
    ) -> None:
        """`open_answers` is called when somebody fetches what may be answered; without it nothing is.

        `answerable` and `counts` ask the core; `on_news` is called when it has to hear something at once.
        """
        self._open_answers, self._answerable, self._counts, self._on_news = open_answers, answerable, counts, on_news
        self._loop = asyncio.get_running_loop()
        self._opened: FetchAnswers | None = None
        self._by: Answerable | None = None
        self._left: tuple[int, list[AnsweredFetch]] | None = None
        self._is_told = False  # that they cannot be
        self._is_to_tell = self._is_to_offer = False

    @property
    def is_on(self) -> bool:
        """Whether fetches are answered, or were and the core has not heard of all."""
        return self._by is not None or self._left is not None

    def on_fetch(self, replica: ReplicaKey) -> None:
        """The core has answered that replica, or lets it wait: its next fetches need not come here, if they may."""
        by = self._answerable() if self._open_answers is not None else None
        if by is None or self._left is not None:  # else the core would not know what was told before
            return
        answers = self._answers()
        if answers is None:
            return
        if self._by is None:
            answers.begin(by)
            self._by = by
        answers.know(replica, counts=self._counts(replica))

    def take(self) -> tuple[int, list[AnsweredFetch]] | None:
        """What the core has not heard of: the epoch, and the fetches in their order."""
        left, self._left = self._left, None
        if left is not None or self._by is None or self._opened is None:
            return left
        taken = self._opened.take()
        return (self._by.epoch, taken) if taken else None

    def end_before(self, effects: list[Effect]) -> None:
        """Answer nothing by what those effects change."""
        if self._by is not None and any(isinstance(effect, _CHANGES) for effect in effects):
            self.end()

    def check(self) -> None:
        """Answer nothing that the core would no longer have answered so."""
        if self._by is None:
            return
        by = self._answerable()
        if by is None or _terms(by) != _terms(self._by):
            self.end()

    def raise_high_watermark(self, offset: int) -> None:
        """Nobody is told less than the core knows."""
        if self._by is not None and self._opened is not None:
            self._opened.raise_high_watermark(offset)
            self._is_to_tell = True

    def on_append(self) -> None:
        """Offer the voters what was appended when this turn of the loop is over, together with all else of the turn."""
        if self._by is not None and not self._is_to_offer:
            self._is_to_offer = True
            self._loop.call_soon(self._offer)

    def tell_voters(self) -> None:
        """What was said about a higher high watermark has left: voters may know of it too."""
        if self._is_to_tell and self._opened is not None:
            self._opened.tell_voters()
        self._is_to_tell = False

    def end(self) -> None:
        """Answer nothing any more; what was taken is still to be told."""
        by, self._by = self._by, None
        if by is not None and self._opened is not None:
            taken = self._opened.end()
            if taken:
                self._left = by.epoch, taken
                self._loop.call_soon(self._tell_left)  # something may be committed by it

    def close(self) -> None:
        """End it for good."""
        self.end()
        self._left = self._open_answers = None
        if self._opened is not None:
            self._loop.remove_reader(self._opened.fd)

    def _answers(self) -> FetchAnswers | None:
        if self._opened is None and self._open_answers is not None:
            try:
                opened = self._open_answers()
                self._loop.add_reader(opened.fd, self._on_readable)
            except Exception as error:  # the core answers them without: no descriptor is free, say
                if not self._is_told:
                    self._is_told = True
                    logger.warning("fetches are answered one by one: %s", error)
                return None
            self._opened = opened
        return self._opened

    def _offer(self) -> None:
        self._is_to_offer = False
        if self._by is not None and self._opened is not None:
            self._opened.offer()

    def _on_readable(self) -> None:
        if self._opened is not None and self._opened.has_news:  # else a step that came first has told it
            self._on_news()

    def _tell_left(self) -> None:
        if self._left is not None:
            self._on_news()


def _terms(by: Answerable) -> tuple[object, ...]:
    """What may not change while it answers; the rest moves by the answers themselves."""
    return by.epoch, by.voters_in_log, by.counts_itself, by.leader_endpoints


class NativeFetchAnswers:
    """Implements `klamm.raft.ports.FetchAnswers` over `_engine.FetchAnswers`."""

    def __init__(self, native: _engine.FetchAnswers, key: ReplicaKey, cluster_id: str, patience_ms: int) -> None:
        """`key`: who answers. `patience_ms`: a process that takes no news for so long answers nothing more."""
        self._native, self._key, self._cluster_id, self._patience_ms = native, key, cluster_id, patience_ms
        self._loop = asyncio.get_running_loop()
        self._known: list[ReplicaKey] = []

    @property
    def fd(self) -> int:
        """See `klamm.raft.ports.FetchAnswers.fd`."""
        return self._native.fd

    @property
    def has_news(self) -> bool:
        """See `klamm.raft.ports.FetchAnswers.has_news`."""
        return self._native.has_news

    def begin(self, by: Answerable) -> None:
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
            patience_ms=self._patience_ms,
        )

    def know(self, replica: ReplicaKey, *, counts: bool) -> None:
        """See `klamm.raft.ports.FetchAnswers.know`."""
        if replica.id == self._key.id:  # it fetches from nobody: whoever says so is refused
            return
        number = self._native.know(replica.id, replica.directory_id, counts)
        if number == len(self._known):
            self._known.append(replica)

    def offer(self) -> None:
        """See `klamm.raft.ports.FetchAnswers.offer`."""
        self._native.offer()

    def raise_high_watermark(self, offset: int) -> None:
        """See `klamm.raft.ports.FetchAnswers.raise_high_watermark`."""
        self._native.raise_high_watermark(offset)

    def tell_voters(self) -> None:
        """See `klamm.raft.ports.FetchAnswers.tell_voters`."""
        self._native.tell_voters()

    def take(self) -> list[AnsweredFetch]:
        """See `klamm.raft.ports.FetchAnswers.take`."""
        return self._fetches(self._native.take())

    def end(self) -> list[AnsweredFetch]:
        """See `klamm.raft.ports.FetchAnswers.end`."""
        return self._fetches(self._native.end())

    def _fetches(self, rows: list[tuple[int, int, int, int]]) -> list[AnsweredFetch]:
        if not rows:
            return []
        now_ms = int(self._loop.time() * 1000)
        return [
            AnsweredFetch(now_ms - age_ms, self._known[number], fetch_offset, end_offset)
            for number, fetch_offset, end_offset, age_ms in rows
        ]
