"""Splits the records that follow from an event of a broker into parts: it may have hundreds of thousands of partitions.

Other work runs between two parts: heartbeats, the quorum's fetches, creation and deletion of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from klamm.controller.leadership.elections import BrokerEvent, ElectionManager
from klamm.controller.result import Result
from klamm.controller.speculation import Speculation

T = TypeVar("T")

_START: Final = (0, 0)
_WRITTEN_FIRST: Final = (BrokerEvent.UNFENCED, BrokerEvent.CONTROLLED_SHUTDOWN)
"""The broker's own record precedes the moves, so that concurrent operations already use it."""


class Moves:
    """The elections after a change of a broker's state.

    It makes one pass over all partitions. If the broker's own record comes last, and other operations ran in between,
    it makes another pass, until one finds nothing and the broker's counts are those at its beginning.
    """

    def __init__(self, elections: ElectionManager, state: Speculation, event: BrokerEvent, broker_id: int) -> None:
        self._elections, self._state = elections, state
        self._event, self.broker_id = event, broker_id
        self._place = _START
        self._pass_changes_any = False
        self._counts_before = self._counts()
        self.is_done = False

    def next_part(self) -> list[bytes]:
        """The records of the next part, for the current image."""
        begins = self._place == _START
        if begins:
            self._pass_changes_any, self._counts_before = False, self._counts()
        records, place = self._elections.part_for_broker(self._state, self._event, self.broker_id, self._place)
        self._pass_changes_any |= bool(records)
        self._place = place or _START
        if place is None:
            is_quiet = not self._pass_changes_any and self._counts() == self._counts_before
            self.is_done = begins or is_quiet or self._event in _WRITTEN_FIRST
        return records

    def _counts(self) -> tuple[int, int]:
        counts = self._state.image.broker_partition_counts(self.broker_id)
        return counts.in_sync, counts.eligible


def in_parts(moves: Moves, first: Sequence[bytes], meanwhile: T, finish: Callable[[int], Result[T]]) -> Result[T]:
    """`first`, the moves, then the records of `finish`, which receives the number of records that are not replayed yet.

    `finish` is called once, with the last part, and its response is the final one. `meanwhile` is a placeholder for it.
    """
    records = [*first, *moves.next_part()]
    if moves.is_done:
        last = finish(len(records))
        return Result(last.answer, [*records, *last.records], is_atomic=False)
    return Result(
        meanwhile,
        records,
        is_atomic=False,
        rest=lambda: in_parts(moves, (), meanwhile, finish),
        broker_id=moves.broker_id,
    )
