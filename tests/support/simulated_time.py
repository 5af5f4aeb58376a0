"""An asyncio loop whose time passes only while nobody has anything to do: hours of waiting in no time."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: it says how long it would have waited."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits for something that has no time"
            # A little more than asked for, as every clock: who counts whole ms would wait for the same one again.
            self.waited_s += timeout + 1e-6 if timeout > 0 else 0
        return found


class SimulatedTimeLoop(asyncio.SelectorEventLoop):
    """Begins at 0 s. What goes on outside of the loop's thread takes no time here."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.waited_s

    def stop_for(self, seconds: float) -> None:
        """Time passes, and the process does not run."""
        self._jumping.waited_s += seconds

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """At once: a thread would take no time here, but time would pass it by."""
        future = self.create_future()
        future.set_result(func(*args))
        return future


def run(main: Coroutine[Any, Any, T], loop_class: type[SimulatedTimeLoop] = SimulatedTimeLoop) -> T:
    """As `asyncio.run`, in simulated time."""
    with asyncio.Runner(loop_factory=loop_class) as runner:
        return runner.run(main)


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in simulated time."""

    @functools.wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return run_test
