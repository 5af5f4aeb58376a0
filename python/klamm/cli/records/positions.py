"""Positions in a log as a user names them: beginning, end, an offset, a distance, a time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klamm.admin.client import Client
from klamm.admin.groups import EARLIEST, LATEST, list_offsets
from klamm.client import ClientError
from klamm.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """One of: a timestamp (ms, or special), an offset, or a distance from the committed offset."""

    timestamp: int | None = None
    offset: int | None = None
    distance: int | None = None

    def resolve(
        self, client: Client, where: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offset in each partition, within its log. A distance counts from `committed`, or else from the end."""
        if self.timestamp is not None:
            return list_offsets(client, dict.fromkeys(where, self.timestamp))
        starts = list_offsets(client, dict.fromkeys(where, EARLIEST))
        ends = list_offsets(client, dict.fromkeys(where, LATEST))
        wanted = {one: self._wanted(committed.get(one, ends[one])) for one in where}
        return {one: min(max(offset, starts[one]), ends[one]) for one, offset in wanted.items()}

    def _wanted(self, committed: int) -> int:
        return committed + self.distance if self.distance is not None else self.offset or 0


def parse_position(text: str) -> Position:
    """`beginning`, `end`, `42`, `+10`, `-10`, or an ISO 8601 time, local unless it names a zone. Raises ClientError."""
    if text in ("beginning", "earliest", "start"):
        return Position(timestamp=EARLIEST)
    if text in ("end", "latest"):
        return Position(timestamp=LATEST)
    if text.isdecimal():
        return Position(offset=int(text))
    if text[:1] in ("+", "-") and text[1:].isdecimal():
        return Position(distance=int(text))
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ClientError(
            f"'{text}' is not a position: use beginning, end, an offset, +N, -N or an ISO 8601 time"
        ) from None
    return Position(timestamp=int(time.timestamp() * 1000))
