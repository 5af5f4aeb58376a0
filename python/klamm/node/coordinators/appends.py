"""Appends of the node's own: those of coordinators and of transaction markers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from klamm.protocol.errors import ErrorCode


class Appends:
    """The callbacks that wait for the engine's `AckedEvent`s, by token."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._waiting: dict[int, Callable[[ErrorCode | None], None]] = {}

    def add(self, done: Callable[[ErrorCode | None], None]) -> int:
        """A token for an append whose result goes to `done`.

        No result arrives before the caller returns to the loop, in whose thread events are drained.
        """
        token = next(self._tokens)
        self._waiting[token] = done
        return token

    def remove(self, token: int) -> None:
        """The append did not begin, or its result is no longer needed."""
        self._waiting.pop(token, None)

    def on_acked(self, token: int, code: int | None) -> None:
        """The engine completed an append; a `code` of None means that its outcome is unknown.

        After an exception the waiter is kept, and the node reports an unknown outcome.
        """
        done = self._waiting.get(token)
        if done is None:
            return
        # UNKNOWN_SERVER_ERROR is that of a panic, before or after the batch was appended.
        if code is None or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            del self._waiting[token]
            done(None)
        else:
            # With too few replicas in sync since, the append is committed all the same, and cannot be rolled back.
            is_committed = code in (0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            done(ErrorCode.NONE if is_committed else ErrorCode(code))
            self._waiting.pop(token, None)
