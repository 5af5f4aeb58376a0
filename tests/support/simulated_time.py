"""An asyncio loop whose time advances only while it is idle: hours of waiting take no time."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Does not wait: it adds the time it would have waited to `waited_s`."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "deadlock: no timer is pending"
            # A little more than asked for, as with every clock: code that counts whole ms would otherwise wait again.
            self.waited_s += timeout + 1e-6 if timeout > 0 else 0
        return found


class SimulatedTimeLoop(asyncio.SelectorEventLoop):
    """Begins at 0 s. Work outside of the loop's thread takes no time here."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.waited_s

    def stop_for(self, seconds: float) -> None:
        """Advance the time without running anything, as if the process was stopped."""
        self._jumping.waited_s += seconds

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run the function immediately: the simulated time would advance while a thread runs it."""
        future = self.create_future()
        future.set_result(func(*args))
        return future


def run(main: Coroutine[Any, Any, T], loop_class: type[SimulatedTimeLoop] = SimulatedTimeLoop) -> T:
    """Like `asyncio.run`, in simulated time."""
    with asyncio.Runner(loop_factory=loop_class) as runner:
        return runner.run(main)


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorates a test that runs in simulated time."""

    @functools.wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return run_test
