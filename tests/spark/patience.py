"""Retries for Spark's fixed timeouts on a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 5
_TOO_LATE = "Python worker failed to connect back"


def patiently(action: Callable[[], T]) -> T:
    """Retry if the process that plans a stream did not start within Spark's fixed 10 s; nothing has been done then."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except Exception as error:
            if _TOO_LATE not in str(error):
                raise
    return action()
