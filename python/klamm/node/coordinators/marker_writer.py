"""Writes the markers of transactions to the partitions that this broker leads (WriteTxnMarkers)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from klamm._engine.metadata import Image
from klamm._engine.node import Engine
from klamm.driving.deadlines import Deadlines
from klamm.node.coordinators.appends import Appends
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place

if TYPE_CHECKING:
    from klamm.coordinator.groups.driver import GroupCoordinator

log: Final = logging.getLogger("klamm.node.transactions")

EngineMarker = tuple[bytes, int, int, None, int, int, bool, int, int]
OnWritten = Callable[[MarkerErrors], None]


class MarkerWriter:
    """Appends markers, and waits until they are committed."""

    def __init__(
        self,
        engine: Engine,
        image: Callable[[], Image],
        appends: Appends,
        groups: Callable[[], GroupCoordinator],
        *,
        timeout_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` returns the time since 1970, the timestamp of markers."""
        self._now_ms = now_ms
        self._engine, self._image, self._appends, self._groups = engine, image, appends, groups
        self._timeout_ms, self._deadlines = timeout_ms, Deadlines()

    def write(self, markers: Iterable[Marker], answer: OnWritten) -> None:
        """Append all markers, those of `__consumer_offsets` through the group coordinator.

        `answer` is called once, at once or later, with an error for each marker: REQUEST_TIMED_OUT if its outcome is
        unknown.
        """
        writing = _Writing(self._appends, self._deadlines, answer)
        appended: list[EngineMarker] = []
        for marker in markers:
            for place in marker.places:
                writing.begin(marker, place)
                if place[0] == GROUPS_TOPIC:
                    self._write_to_group(writing, marker, place)
                elif (topic_id := self._topic_id(place)) is None:
                    writing.end(marker, place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif self._engine.must_recover(topic_id, place[1]):
                    writing.tasks.append(asyncio.ensure_future(self._write_opened(writing, topic_id, marker, place)))
                else:
                    appended.append(_of_engine(topic_id, place, writing.token(marker, place), marker))
        if appended:
            self._append(appended)
        writing.all_begun(self._timeout_ms)

    def close(self) -> None:
        """Stop the timeouts of requests."""
        self._deadlines.close()

    def _append(self, appended: list[EngineMarker]) -> None:
        try:
            self._engine.append_markers(appended, self._now_ms())
        except Exception:  # any of the markers may be in the log: the coordinator sends them again
            log.exception("markers could not be appended")
            for _, _, token, *_ in appended:
                self._appends.on_acked(token, None)

    def _topic_id(self, place: Place) -> bytes | None:
        """The topic's id; None if there is no such partition."""
        image = self._image()
        return None if image.leader(*place) is None else image.topic_id(place[0])

    async def _write_opened(self, writing: _Writing, topic_id: bytes, marker: Marker, place: Place) -> None:
        """Write a marker after the recovery of its partition's log."""
        try:
            await opened(self._engine, topic_id, place[1])
        except KafkaError:
            writing.end(marker, place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except Exception:  # nothing is appended: the coordinator sends it again
            log.exception("the log of %s-%d could not be opened for the marker of a transaction", *place)
            writing.end(marker, place, None)
        else:
            self._append([_of_engine(topic_id, place, writing.token(marker, place), marker)])

    def _write_to_group(self, writing: _Writing, marker: Marker, place: Place) -> None:
        try:
            self._groups().write_marker(
                place[1],
                marker.producer_id,
                marker.epoch,
                partial(writing.end, marker, place),
                commits=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.version,
            )
        except Exception:  # the marker may be in the log: the coordinator sends it again
            log.exception("the marker of a transaction could not be given to %s-%d", *place)
            writing.end(marker, place, None)


class _Writing:
    """The errors of one request, while some are missing."""

    def __init__(self, appends: Appends, deadlines: Deadlines, answer: OnWritten) -> None:
        self._appends, self._deadlines = appends, deadlines
        self._answer: OnWritten | None = answer
        self._errors: dict[int, dict[Place, ErrorCode]] = {}
        self._missing = 1
        """The number of markers without a result, plus 1 until `all_begun`."""
        self._tokens: list[int] = []
        self._deadline: int | None = None
        self.tasks: Final[list[asyncio.Future[None]]] = []

    def begin(self, marker: Marker, place: Place) -> None:
        # Until its result arrives, the outcome is unknown: the coordinator sends the marker again.
        self._errors.setdefault(marker.producer_id, {})[place] = ErrorCode.REQUEST_TIMED_OUT
        self._missing += 1

    def token(self, marker: Marker, place: Place) -> int:
        """The token of the marker's append."""
        token = self._appends.add(partial(self.end, marker, place))
        self._tokens.append(token)
        return token

    def end(self, marker: Marker, place: Place, code: ErrorCode | None) -> None:
        """The result of a marker, None if its outcome is unknown."""
        if code is not None and self._answer is not None:
            self._errors[marker.producer_id][place] = code
        self._end_one()

    def all_begun(self, timeout_ms: int) -> None:
        """Answer once no result is missing, or after `timeout_ms`."""
        self._end_one()
        if self._answer is not None:
            self._deadline = self._deadlines.add(timeout_ms, self._finish)

    def _end_one(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._deadline is not None:
            self._deadlines.remove(self._deadline)
        for token in self._tokens if self._missing else ():
            self._appends.remove(token)
        for task in self.tasks:
            task.cancel()
        try:
            answer(self._errors)
        except Exception:  # the engine's other events are processed all the same
            log.exception("the results of transaction markers could not be processed")


def _of_engine(topic_id: bytes, place: Place, token: int, marker: Marker) -> EngineMarker:
    return (
        topic_id,
        place[1],
        token,
        None,
        marker.producer_id,
        marker.epoch,
        marker.is_commit,
        marker.coordinator_epoch,
        marker.version,
    )
