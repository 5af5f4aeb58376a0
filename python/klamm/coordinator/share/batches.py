"""Merges the batches of a share partition's state, batch for batch as Kafka's `PersisterStateBatchCombiner` does.

Where two batches overlap, the one with the higher delivery count has the offsets, and of two with the same count the
one with the higher state. The other keeps what is before and after it. Neighbours of equal count and state are joined,
except a batch that was already settled when a later overlap made its neighbour equal to it. Both forms mean the same;
Kafka's is followed, so that both write the same records.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from klamm.protocol.messages.share_state import NO_START_OFFSET, StateBatch

Ordered = tuple[int, int, int, int]
"""First offset, last offset, count and state: Kafka's order of batches."""


def combine(so_far: Iterable[StateBatch], added: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """All batches from `start_offset` on (-1: no offset is dropped), in order, without overlaps."""
    kept = [*so_far, *added]
    if start_offset != NO_START_OFFSET:
        kept = [
            batch._replace(first_offset=max(batch.first_offset, start_offset))
            for batch in kept
            if batch.last_offset >= start_offset
        ]
    if len(kept) < 2:
        return tuple(kept)
    pending: list[Ordered] = [
        (one.first_offset, one.last_offset, one.delivery_count, one.delivery_state) for one in kept
    ]
    heapq.heapify(pending)
    settled: list[Ordered] = []
    while pending:
        before = heapq.heappop(pending)
        if not pending or not _meet(before, pending[0]):
            settled.append(before)
            continue
        for merged in _merged(before, heapq.heappop(pending)):
            heapq.heappush(pending, merged)
    return tuple(StateBatch(first, last, state, count) for first, last, count, state in settled)


def _meet(before: Ordered, after: Ordered) -> bool:
    """Whether they overlap, or are neighbours of equal count and state."""
    return after[0] <= before[1] or (after[0] == before[1] + 1 and after[2:] == before[2:])


def _merged(before: Ordered, after: Ordered) -> list[Ordered]:
    """Two batches that meet, `before` first in order, as batches that do not overlap."""
    if before[2:] == after[2:]:
        return [(before[0], max(before[1], after[1]), *before[2:])]
    if after[2:] < before[2:]:
        rest = [(before[1] + 1, *after[1:])] if after[1] > before[1] else []
        return [before, *rest]
    head = [(before[0], after[0] - 1, *before[2:])] if after[0] > before[0] else []
    tail = [(after[1] + 1, *before[1:])] if before[1] > after[1] else []
    return [*head, after, *tail]
