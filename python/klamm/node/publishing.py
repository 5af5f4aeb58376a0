"""Committed images, brought to the parts of a node that follow them: a part that fails holds up no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from klamm._engine import Delta, Image

log = logging.getLogger("klamm.node.publishing")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0

Take = Callable[[Image, Delta], None]
"""Takes a committed image, and what differs from the one that it took last."""


class Publisher:
    """Calls its followers in the order in which they were added. To be made and used on the loop's thread."""

    def __init__(self) -> None:
        self.image = Image()
        """The newest committed image; an empty one before the first."""
        self._followers: dict[str, _Follower] = {}

    @property
    def followers(self) -> dict[str, Take]:
        """What is called, by name."""
        return {name: follower.take for name, follower in self._followers.items()}

    def follow(self, name: str, take: Take) -> None:
        """Call `take` with every image from the next one on.

        An exception of it is logged, and the call is repeated with the newest image, later each time. The delta then
        holds all that has changed since the image that was taken last.
        """
        self._followers[name] = _Follower(name, take, self)

    def publish(self, before: Image, image: Image) -> None:
        """A newer image is committed; `before` was the one until now. Never raises."""
        self.image = image
        delta = image.delta_since(before)
        for follower in list(self._followers.values()):
            if follower.taken is None:
                follower.taken = before
            follower.call(delta if follower.taken is before else None)

    def close(self) -> None:
        """Call nothing again."""
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()


class _Follower:
    def __init__(self, name: str, take: Take, publisher: Publisher) -> None:
        self.name, self.take, self._publisher = name, take, publisher
        self.taken: Image | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._last_error = ""

    def call(self, delta: Delta | None) -> None:
        """Take the newest image, unless a repeated call has yet to wait."""
        if self._retry is not None:
            return
        image = self._publisher.image
        try:
            self.take(image, delta or image.delta_since(self.taken or Image()))
        except Exception as error:
            self._call_later(error)
        else:
            self.taken, self._failures, self._last_error = image, 0, ""

    def _call_later(self, error: Exception) -> None:
        if repr(error) != self._last_error:
            self._last_error = repr(error)
            text = "%s could not take the metadata up to offset %d, and is asked again: %r"
            log.error(text, self.name, self._publisher.image.last_offset, error, exc_info=error)
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 20), LONGEST_PAUSE_S)
        self._failures += 1
        self._retry = asyncio.get_running_loop().call_later(pause_s, self._call_again)

    def _call_again(self) -> None:
        self._retry = None
        self.call(None)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
