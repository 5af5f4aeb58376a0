"""How long a handler works on a request, without the time during which it waits (KIP-124)."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter_ns
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def timed(work: Coroutine[Any, Any, T], took: Callable[[int], None]) -> Generator[Any, Any, T]:
    """Await `work`. When it ends, in any way, call `took` with the total nanoseconds of its steps."""
    spent = 0
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            begun = perf_counter_ns()
            try:
                waits_for = work.send(result) if error is None else work.throw(error)
            except StopIteration as end:
                returned: T = end.value
                return returned
            finally:
                spent += perf_counter_ns() - begun
            result = error = None
            try:
                result = yield waits_for
            except BaseException as raised:  # the step that waits handles it, also a cancellation
                error = raised
    finally:
        work.close()
        took(spent)
