"""The session of a share group's member at one leader (KIP-932): its epoch, its partitions, and what was processed.

A request that got no response, or a session that the leader does not know, starts the session again. What was not yet
acknowledged is then free for every member, this one included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from klamm.cli.membership.share_member import SharePlace
from klamm.protocol.messages.share_sessions import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquireMode,
    ForgottenShareTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    SharePartition,
    ShareTopic,
)

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class ShareSession:
    """See the module's docstring. Nothing is acknowledged while `epoch` is 0."""

    def __init__(self, group_id: str, member_id: str) -> None:
        """A session that is not open yet."""
        self._group_id, self._member_id = group_id, member_id
        self._partitions: frozenset[SharePlace] = frozenset()
        self._processed: dict[SharePlace, dict[int, AcknowledgeType]] = {}
        self.epoch = OPENING_EPOCH

    @property
    def is_open(self) -> bool:
        """Whether the leader has answered a fetch of this session."""
        return self.epoch != OPENING_EPOCH

    def on_processed(self, where: SharePlace, offset: int, kind: AcknowledgeType) -> None:
        """The next request acknowledges this offset, unless the session is lost before."""
        if self.is_open:
            self._processed.setdefault(where, {})[offset] = kind

    def fetch(
        self, partitions: frozenset[SharePlace], *, wait_ms: int, bytes_max: int, records_max: int, mode: AcquireMode
    ) -> ShareFetchRequest:
        """Read these partitions, and acknowledge what was processed. Its response is to be reported."""
        acknowledged = self._take_processed()
        changed = (partitions - self._partitions) | acknowledged.keys()
        request = ShareFetchRequest(
            self._group_id,
            self._member_id,
            self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=mode,
            topics=_topics(changed, acknowledged),
            forgotten_topics_data=_forgotten(self._partitions - partitions),
        )
        self._partitions = partitions
        return request

    def close(self) -> ShareAcknowledgeRequest | None:
        """Acknowledge what was processed, and release all other records. None if no session is open."""
        if not self.is_open:
            return None
        acknowledged = self._take_processed()
        topics = _topics(acknowledged.keys(), acknowledged)
        self.restart()
        return ShareAcknowledgeRequest(self._group_id, self._member_id, CLOSING_EPOCH, topics=topics)

    def on_answered(self) -> None:
        """The leader took the last fetch."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def restart(self) -> None:
        """The session is lost, or its last request got no response: the next fetch opens another one."""
        self.epoch, self._partitions = OPENING_EPOCH, frozenset()
        self._processed.clear()

    def _take_processed(self) -> dict[SharePlace, tuple[AcknowledgementBatch, ...]]:
        taken = {where: tuple(_batches(sorted(kinds.items()))) for where, kinds in self._processed.items()}
        self._processed.clear()
        return taken


def _batches(offsets: Sequence[tuple[int, AcknowledgeType]]) -> Iterable[AcknowledgementBatch]:
    """Ranges of consecutive offsets with one type each."""
    runs = groupby(enumerate(offsets), key=lambda entry: (entry[1][0] - entry[0], entry[1][1]))
    for (_, kind), run in runs:
        found = [offset for _, (offset, _) in run]
        yield AcknowledgementBatch(found[0], found[-1], (kind,))


def _topics(
    places: Iterable[SharePlace], acknowledged: dict[SharePlace, tuple[AcknowledgementBatch, ...]]
) -> tuple[ShareTopic, ...]:
    return tuple(
        ShareTopic(topic_id, tuple(SharePartition(one.partition, acknowledged.get(one, ())) for one in of))
        for topic_id, of in groupby(sorted(places), key=lambda place: place.topic_id)
    )


def _forgotten(places: Iterable[SharePlace]) -> tuple[ForgottenShareTopic, ...]:
    return tuple(
        ForgottenShareTopic(topic_id, tuple(one.partition for one in of))
        for topic_id, of in groupby(sorted(places), key=lambda place: place.topic_id)
    )
