"""The records of a partition as rows, and those of them that a read_committed reader gets (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klamm.node.node import Node

Row = tuple[int, bytes | None, bytes | None, int, bool]
"""Offset, key, value, producer id (-1 outside transactions), whether it is a control record, whose key is its type."""

ABORT: Final = (0).to_bytes(2)
READ_BYTES: Final = 4 << 20


def rows_below(leader: Node, topic_id: bytes, partition: int, end: int) -> Iterator[Row]:
    """The rows of a partition up to the offset `end`, from its leader."""
    offset = 0
    while offset < end:
        following, rows = leader.engine.read_records(topic_id, partition, offset, READ_BYTES)
        if following == offset:
            return
        yield from (row for row in rows if row[0] < end)
        offset = following


def read_committed(rows: Iterable[Row]) -> list[Row]:
    """The rows without those of aborted transactions, up to the last stable offset: where one begins that has no end.

    `rows` are all of a partition, in the order of their offsets; control records stay.
    """
    kept, aborted = list(rows), set[int]()
    ongoing: dict[int, list[int]] = {}
    for offset, key, _, producer_id, is_control in kept:
        if producer_id < 0:
            continue
        if not is_control:
            ongoing.setdefault(producer_id, []).append(offset)
        elif key == ABORT:
            aborted.update(ongoing.pop(producer_id, ()))
        else:
            ongoing.pop(producer_id, None)
    stable = min((offsets[0] for offsets in ongoing.values()), default=None)
    return [row for row in kept if row[0] not in aborted and (stable is None or row[0] < stable)]
