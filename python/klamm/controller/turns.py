"""Work for later turns of the controller: the rest of long operations, and requests that wait for one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from klamm.controller.effects import Effect
from klamm.controller.result import Result


class Turn:
    """The rest of an operation."""

    __slots__ = ("broker_id", "decide", "done", "due_ms", "holds_tasks")

    def __init__(
        self,
        decide: Callable[[int], Result[Any]],
        done: Callable[[int, Any], list[Effect]],
        broker_id: int | None,
        *,
        holds_tasks: bool = False,
    ) -> None:
        """`decide` and `done` receive the time; `done` also receives the answer of the last part.

        `broker_id`: the broker that it changes. `holds_tasks`: no periodic task begins before it is done, because the
        state is one in between.
        """
        self.decide, self.done, self.broker_id, self.holds_tasks = decide, done, broker_id, holds_tasks
        self.due_ms = 0


class Turns:
    """The operations in progress, in the order of their next turns; one at a time for each broker."""

    def __init__(self) -> None:
        self._queue: deque[Turn] = deque()
        self._waiting: dict[int, deque[Turn]] = {}  # by each broker with an operation under way, what begins after it

    @property
    def due_ms(self) -> int | None:
        """When the next turn is due."""
        return self._queue[0].due_ms if self._queue else None

    @property
    def hold_tasks(self) -> bool:
        """Whether no periodic task may begin."""
        return any(turn.holds_tasks for turn in self._queue)

    def pop(self) -> Turn:
        """The next turn."""
        return self._queue.popleft()

    def must_wait(self, broker_id: int) -> bool:
        """Whether an operation of that broker is under way."""
        return broker_id in self._waiting

    def wait(self, turn: Turn) -> None:
        """Begin the operation after the one in progress for its broker, and those that already wait."""
        assert turn.broker_id is not None, "it waits for no other"
        self._waiting[turn.broker_id].append(turn)

    def put_off(self, now_ms: int, turn: Turn) -> None:
        """Continue the operation after those that already have turns."""
        if turn.broker_id is not None:
            self._waiting.setdefault(turn.broker_id, deque())
        turn.due_ms = now_ms
        self._queue.append(turn)

    def end(self, now_ms: int, turn: Turn) -> None:
        """The operation is done: the next one of its broker gets a turn."""
        if turn.broker_id is None:
            return
        waiting = self._waiting[turn.broker_id]
        if waiting:
            self.put_off(now_ms, waiting.popleft())
        else:
            del self._waiting[turn.broker_id]

    def clear(self) -> None:
        """Drop all operations."""
        self._queue.clear()
        self._waiting.clear()


def rest_of(result: Result[Any]) -> Callable[[int], Result[Any]]:
    """The decision for the rest of an operation."""
    rest = result.rest
    assert rest is not None, "nothing is left"
    return lambda now_ms: rest()
