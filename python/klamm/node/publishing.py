"""Publishes committed images to the parts of a node. A part that fails does not delay the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from klamm._engine.metadata import Delta, Image
from klamm.driving.clock import DeadlineTimer, LoopClock

log = logging.getLogger("klamm.node.publishing")

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 10_000

Take = Callable[[Image, Delta], None]
"""Receives a committed image, and the delta since the one that it received last."""


class Publisher:
    """Calls its followers in the order in which they were added. Use it in the loop's thread only."""

    def __init__(self) -> None:
        self.image = Image()
        """The newest committed image; an empty one before the first."""
        self._followers: dict[str, _Follower] = {}

    @property
    def followers(self) -> dict[str, Take]:
        """The followers by name."""
        return {name: follower.take for name, follower in self._followers.items()}

    def follow(self, name: str, take: Take) -> None:
        """Call `take` with every image from the next one on.

        If it raises, the exception is logged and the call is repeated with the newest image, after growing pauses. The
        delta then contains all changes since the last image for which the call succeeded.
        """
        self._followers[name] = _Follower(name, take, self)

    def publish(self, before: Image, image: Image) -> None:
        """Publish a newer committed image; `before` is the previous one. Never raises."""
        # The image that followers took last is an object of ours: the caller's `before` is an equal, but another one.
        newest, self.image = self.image, image
        delta = image.delta_since(before)
        for follower in list(self._followers.values()):
            is_current = follower.taken is None or follower.taken is newest
            if follower.taken is None:
                follower.taken = before
            follower.call(delta if is_current else None)

    def close(self) -> None:
        """Stop all calls."""
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()


class _Follower:
    def __init__(self, name: str, take: Take, publisher: Publisher) -> None:
        self.name, self.take, self._publisher = name, take, publisher
        self.taken: Image | None = None
        self._retry: DeadlineTimer | None = None  # created by the first failure
        self._failures = 0
        self._last_error = ""

    def call(self, delta: Delta | None) -> None:
        """Take the newest image, unless a repeated call is scheduled."""
        if self._retry is not None and self._retry.is_armed:
            return
        image = self._publisher.image
        try:
            self.take(image, delta or image.delta_since(self.taken or Image()))
        except Exception as error:  # a subscriber must not keep the image from the others; it is called again
            self._call_later(error)
        else:
            self.taken, self._failures, self._last_error = image, 0, ""

    def _call_later(self, error: Exception) -> None:
        if repr(error) != self._last_error:
            self._last_error = repr(error)
            text = "%s could not take the metadata up to offset %d, and is called again: %r"
            log.error(text, self.name, self._publisher.image.last_offset, error, exc_info=error)
        if self._retry is None:
            self._retry = DeadlineTimer(LoopClock(), lambda at_ms: self.call(None))
        self._retry.arm_in(min(FIRST_PAUSE_MS * 2 ** min(self._failures, 20), LONGEST_PAUSE_MS))
        self._failures += 1

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
