"""Ctrl-C where what was begun has to come to its end first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class SecondInterrupt(KeyboardInterrupt):
    """A second Ctrl-C: nobody knows how what was begun has ended."""


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, then is a KeyboardInterrupt; a second one is a SecondInterrupt at once.

    Where Ctrl-C is no KeyboardInterrupt, since it is ignored or another's, and beside the main thread, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise SecondInterrupt
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
