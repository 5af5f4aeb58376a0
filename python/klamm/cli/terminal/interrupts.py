"""Ctrl-C and SIGTERM: the normal end of a command that follows something, or delayed until a block has completed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from klamm.cli.terminal.output import say


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


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """Treat Ctrl-C and SIGTERM as the normal end of a command that follows a topic or a group."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        say("")
    finally:
        signal.signal(signal.SIGTERM, before)
