"""What one task reads. Spark's workers import this module, so it needs nothing else of klamm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class UnreadableError(Exception):
    """A file that was whole when it was planned, and is not when a task reads it; the text names it."""


class Piece(NamedTuple):
    """Whole batches, by their bytes."""

    position: int
    size_bytes: int


class SnapshotHead(NamedTuple):
    """Where the records of a snapshot stand in the log: all at the last record that it contains."""

    name: str
    end_offset: int
    epoch: int
    timestamp_ms: int
    """The append time of the last record that it contains: nothing in it says more of when."""


class Part(NamedTuple):
    """Pieces of a segment or of a snapshot."""

    path: str
    pieces: tuple[Piece, ...]
    end_offset: int
    """Behind its last record; of a snapshot, behind the last that it contains."""
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
