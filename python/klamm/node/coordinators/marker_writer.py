"""Writes the markers of transactions to the partitions that this broker leads (WriteTxnMarkers)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from klamm._engine.metadata import Image
from klamm._engine.node import Engine
from klamm.node.coordinators.appends import Appends
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.views.partitions import opened
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place

if TYPE_CHECKING:
    from klamm.coordinator.groups.driver import GroupCoordinator

log: Final = logging.getLogger("klamm.node.transactions")

EngineMarker = tuple[bytes, int, int, int, int, bool, int, int]


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
        """`now_ms` is the time since 1970, which markers get."""
        self._now_ms = now_ms
        self._engine, self._image, self._appends, self._groups = engine, image, appends, groups
        self._timeout_s = timeout_ms / 1000

    async def write(self, markers: Iterable[Marker]) -> MarkerErrors:
        """Append all markers, those of `__consumer_offsets` through the group coordinator; an error for each."""
        writing = _Writing()
        appended: list[EngineMarker] = []
        of_groups = []
        for marker in markers:
            for place in marker.places:
                writing.begin(marker, place)
                if place[0] == GROUPS_TOPIC:
                    of_groups.append((marker, place))
                elif (topic_id := await self._opened(place)) is not None:
                    token = self._appends.add(partial(writing.end, marker, place))
                    appended.append(_of_engine(topic_id, place, token, marker))
                else:
                    writing.end(marker, place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        tokens = [token for _, _, token, *_ in appended]
        tasks = [asyncio.ensure_future(self._write_to_group(writing, *each)) for each in of_groups]
        try:
            if appended:
                self._append(appended)
            return await writing.finished(self._timeout_s)
        finally:
            for token in tokens:
                self._appends.remove(token)
            for task in tasks:
                task.cancel()

    def _append(self, appended: list[EngineMarker]) -> None:
        try:
            self._engine.append_markers(appended, self._now_ms())
        except Exception:  # any of the markers may be in the log: the coordinator sends them again
            log.exception("markers could not be appended")
            for _, _, token, *_ in appended:
                self._appends.on_acked(token, None)

    async def _opened(self, place: Place) -> bytes | None:
        """The topic's id, with the partition open; None if there is no such partition."""
        topic, partition = place
        image = self._image()
        topic_id = image.topic_id(topic)
        if topic_id is None or image.partition(topic_id, partition) is None:
            return None
        try:
            await opened(self._engine, topic_id, partition)
        except KafkaError:
            return None
        return topic_id

    async def _write_to_group(self, writing: _Writing, marker: Marker, place: Place) -> None:
        code: ErrorCode | None = None
        try:
            code = await self._groups().write_marker(
                place[1],
                marker.producer_id,
                marker.epoch,
                commits=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.version,
            )
        except Exception:  # the marker may be in the log: the coordinator sends it again
            log.exception("the marker of a transaction could not be given to %s-%d", *place)
        finally:
            writing.end(marker, place, code)


class _Writing:
    """The errors of one request, while some are missing."""

    def __init__(self) -> None:
        self._errors: dict[int, dict[Place, ErrorCode]] = {}
        self._count = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, marker: Marker, place: Place) -> None:
        # Until its result arrives, the outcome is unknown: the coordinator sends the marker again.
        self._errors.setdefault(marker.producer_id, {})[place] = ErrorCode.REQUEST_TIMED_OUT
        self._count += 1

    def end(self, marker: Marker, place: Place, code: ErrorCode | None) -> None:
        if code is not None:
            self._errors[marker.producer_id][place] = code
        self._count -= 1
        if not self._count and not self._done.done():
            self._done.set_result(None)

    async def finished(self, timeout_s: float) -> MarkerErrors:
        if self._count:
            await asyncio.wait({self._done}, timeout=timeout_s)
        return self._errors


def _of_engine(topic_id: bytes, place: Place, token: int, marker: Marker) -> EngineMarker:
    return (
        topic_id,
        place[1],
        token,
        marker.producer_id,
        marker.epoch,
        marker.is_commit,
        marker.coordinator_epoch,
        marker.version,
    )
