"""Delays Ctrl-C until a block of code has completed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class SecondInterrupt(KeyboardInterrupt):
    """A second Ctrl-C: the outcome of the interrupted block is unknown."""


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, then raise KeyboardInterrupt; a second one raises SecondInterrupt at once.

    No effect outside the main thread, or if Ctrl-C is ignored or handled by other code.
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
