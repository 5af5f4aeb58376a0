"""What Spark gives up of its own accord on a machine that is busy with something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 5
_TOO_LATE = "Python worker failed to connect back"


def patiently(action: Callable[[], T]) -> T:
    """Do it again where a process that plans a stream had not started within Spark's fixed 10 s: nothing was done."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except Exception as error:
            if _TOO_LATE not in str(error):
                raise
    return action()
