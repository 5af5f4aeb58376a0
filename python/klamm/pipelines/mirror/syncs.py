"""Maps source offsets to the target offsets at which reading continues. Pure.

What is known of a partition is a list of syncs. The one law of all of them: *every record that the source has from
`source` on is, or will be, on the target from `target` on*. So a consumer that has read everything before `source` on
the source and continues at `target` on the target misses nothing; it may read some records again.

Why a sync holds: `target` was the end of the target's partition before any of those records was written by the task
that succeeded in writing them, and all later ones are written later still. Neither other writers nor tasks that were
tried again, nor a mirror that was killed and repeats its last batch can change that: they only add records. An end that
a broker tells too low, which a new leader may, is a `target` too low: more is read again.

`length` is what makes a sync precise: the records [source, source + length) are one by one at
[target, target + length). It is claimed only where the partition grew by exactly as many records as one task wrote:
then there is one copy of each, in order, and nothing else between.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

KEPT_DENSE: Final = 128
"""The number of newest syncs that are all kept."""
SPACING: Final = 8
"""Older syncs have gaps of up to an eighth of their distance from the newest."""


class Sync(NamedTuple):
    """A pair of source and target offsets, and the number of records for which both advance equally."""

    source: int
    target: int
    length: int = 0


class Run(NamedTuple):
    """Records at [source, source + length), without a gap; the first is the `ordinal`th that a task wrote, from 0."""

    source: int
    ordinal: int
    length: int


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote of a partition."""

    topic: str
    """The source partition."""
    partition: int
    rows: int
    first: int
    """Source offset of the first record; `last` of the last."""
    last: int
    revoke_before: int
    """The end of the target partition before the task wrote; `end_after`: when everything was acknowledged."""
    end_after: int
    runs: tuple[Run, ...]
    """The runs of all records, or of some: missing runs cost precision."""


def syncs_of(written: Written) -> list[Sync]:
    """The syncs from a task, by ascending source offset."""
    last = Sync(written.last + 1, written.end_after)
    if written.end_after - written.revoke_before != written.rows:
        return [Sync(written.first, written.revoke_before), last]
    return [*(Sync(run.source, written.revoke_before + run.ordinal, run.length) for run in written.runs), last]


def extended(syncs: Sequence[Sync], learned: Sequence[Sync]) -> tuple[Sync, ...]:
    """The syncs with newer ones, ascending in both offsets.

    What is known of the same source offsets gives way: they were written again, and nearer to the target's end. So does
    everything where a topic was deleted on the source and made again.
    """
    begin = learned[0].source
    kept = [_before(sync, begin) for sync in syncs if sync.source < begin]
    for sync in learned:
        if kept and _continues(kept[-1], sync):
            kept[-1] = kept[-1]._replace(length=kept[-1].length + sync.length)
        else:
            kept.append(sync)
    return tuple(_thinned(kept))


def translate(syncs: Sequence[Sync], offset: int) -> int | None:
    """The target offset for a group at `offset` on the source; None if it is older than all syncs."""
    at = bisect.bisect_right(syncs, offset, key=lambda sync: sync.source)
    if at == 0:
        return None
    sync = syncs[at - 1]
    return sync.target + min(offset - sync.source, sync.length)


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same runs, merged if they continue each other."""
    found: list[Run] = []
    for run in runs:
        if found and (found[-1].source + found[-1].length, found[-1].ordinal + found[-1].length) == run[:2]:
            found[-1] = found[-1]._replace(length=found[-1].length + run.length)
        else:
            found.append(run)
    return found


def _before(sync: Sync, begin: int) -> Sync:
    return sync._replace(length=min(sync.length, begin - sync.source))


def _continues(sync: Sync, following: Sync) -> bool:
    return (sync.source + sync.length, sync.target + sync.length) == (following.source, following.target)


def _thinned(syncs: list[Sync]) -> list[Sync]:
    """Drop syncs whose neighbours are close to each other, relative to their distance from the newest."""
    newest = syncs[-1].source
    kept: list[Sync] = []
    for number, sync in enumerate(syncs):
        is_dense = number >= len(syncs) - KEPT_DENSE or not kept
        if is_dense or syncs[number + 1].source - kept[-1].source > (newest - sync.source) // SPACING:
            kept.append(sync)
    return kept
