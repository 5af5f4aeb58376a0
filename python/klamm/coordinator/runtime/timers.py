"""Deadlines by key. Extending one is cheap, because it does not change the heap."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K")

LATE_MS: Final = 100
"""A timer that fires this late shows that the process did not run, perhaps for longer."""
UNREAD_MS: Final = 1_000
"""The longest time, after a pause, to read the requests that arrived during it."""


class Timers(Generic[K]):
    """Deadlines by key. Setting a key again replaces its deadline.

    A deadline that moves to a later time keeps its heap entry; when the entry is popped, it is pushed again with the
    new time. So renewing a session, which every heartbeat does, is one dict write. Keys are only compared for equality;
    equal deadlines fire in the order in which they were set.

    A deadline that fires `late_ms` or more after its time is extended once by `grace_ms`: the process may not have run,
    and the requests that it did not read yet may renew the key.
    """

    def __init__(self, late_ms: int | None = None, grace_ms: int = 0) -> None:
        """Without `late_ms`, no deadline is extended."""
        self._late_ms = late_ms
        self._grace_ms = grace_ms
        self._extended: set[K] = set()
        self._deadlines: dict[K, int] = {}
        self._queued_at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def deadline_of(self, key: K) -> int | None:
        """The deadline of `key`, if it is set."""
        return self._deadlines.get(key)

    def schedule(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of `key`, replacing an earlier one."""
        self._extended.discard(key)
        self._set(key, deadline_ms)

    def _set(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued_at = self._queued_at.get(key)
        if queued_at is None or deadline_ms < queued_at:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it is set."""
        self._deadlines.pop(key, None)
        self._extended.discard(key)

    def put_off(self, by_ms: int) -> None:
        """Extend all deadlines by `by_ms`."""
        deadlines = {key: deadline_ms + by_ms for key, deadline_ms in self._deadlines.items()}
        self._deadlines.clear()
        self._queued_at.clear()
        self._heap.clear()
        for key, deadline_ms in deadlines.items():
            self._set(key, deadline_ms)

    def _push(self, key: K, at_ms: int) -> None:
        self._queued_at[key] = at_ms
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, key))

    @property
    def deadline_ms(self) -> int | None:
        """A time at or before the earliest deadline, or None without deadlines."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[K]:
        """Remove and yield each key that is due. Keys that are set meanwhile wait for the next call."""
        for key in self._take_due(now_ms):
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None or deadline_ms > now_ms:
                continue  # cancelled or extended by a key that fired before
            if self._is_late(key, now_ms - deadline_ms):
                self._set(key, now_ms + self._grace_ms)
                self._extended.add(key)
                continue
            self.cancel(key)
            yield key

    def _is_late(self, key: K, late_ms: int) -> bool:
        return self._late_ms is not None and late_ms >= self._late_ms and key not in self._extended

    def _take_due(self, now_ms: int) -> list[K]:
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._queued_at.get(key) != at_ms:
                continue  # an earlier entry of this key has replaced it
            del self._queued_at[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                due.append(key)
            else:
                self._push(key, deadline_ms)
        return due
