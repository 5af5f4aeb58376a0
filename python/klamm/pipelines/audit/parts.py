"""The input of one task. Spark's workers import this module, so it imports nothing else of klamm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class UnreadableError(Exception):
    """A file that was complete when it was planned, and is not when a task reads it; the message names it."""


class Piece(NamedTuple):
    """Complete batches, by their bytes."""

    position: int
    size_bytes: int


class SnapshotHead(NamedTuple):
    """The position of a snapshot's records in the log: all at the last record that it contains."""

    name: str
    end_offset: int
    epoch: int
    timestamp_ms: int
    """The append time of the last record that it contains; the snapshot has no other times."""


class Part(NamedTuple):
    """Pieces of a segment or of a snapshot."""

    path: str
    pieces: tuple[Piece, ...]
    end_offset: int
    """The offset after its last record; of a snapshot, after the last record that it contains."""
    snapshot: SnapshotHead | None = None


def to_text(parts: Sequence[Part]) -> str:
    """As an option of a data source."""
    return json.dumps(parts)


def from_text(text: str) -> list[Part]:
    """The parts of such an option."""
    return [
        Part(path, tuple(Piece(*one) for one in pieces), end_offset, SnapshotHead(*head) if head else None)
        for path, pieces, end_offset, head in json.loads(text)
    ]
