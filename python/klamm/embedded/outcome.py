"""A result that one thread sets and another waits for; the wait may be interrupted anywhere."""

from __future__ import annotations

import threading
import time
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LOOK_S: Final = 0.1
"""The longest wait without a wake-up."""


class Outcome(Generic[T]):
    """A value or an error, set once.

    KeyboardInterrupt may come between any two steps of Python code, so within `threading.Event` or a `Future` too. They
    keep their lock for good then, and the thread that sets the result hangs. Here a wait only takes a latch.
    """

    def __init__(self) -> None:
        self._latch = threading.Lock()
        self._latch.acquire()
        self._setting = threading.Lock()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.is_set = False

    def set_value(self, value: T) -> None:
        """End with a value; nothing happens when it has ended."""
        self._set(value, None)

    def set_error(self, error: BaseException) -> None:
        """End with an error; nothing happens when it has ended."""
        self._set(None, error)

    def _set(self, value: T | None, error: BaseException | None) -> None:
        if self._setting.acquire(blocking=False):
            self._value, self._error, self.is_set = value, error, True
            self._latch.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; whether it is."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_set:
            left_s = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
            if left_s <= 0:
                return False
            # An interrupt may come right after this, and another thread may wait as well: so the flag decides.
            self._latch.acquire(timeout=left_s)
        return True

    def result(self, timeout_s: float) -> T:
        """The value. Raises the error that was set, TimeoutError."""
        if not self.wait(timeout_s):
            raise TimeoutError(f"no result within {timeout_s:.0f} s")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with the flag
