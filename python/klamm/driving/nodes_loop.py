"""The event loop of the nodes of an embedded cluster: a node can be paused like a stopped process, and the time of
sessions can be advanced.

A callback belongs to the node in whose context it was scheduled, so tasks, timers and readers of a node belong to it.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVarTuple

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Ts = TypeVarTuple("Ts")

QUICK_MOTION_S: Final = 60.0
SPEED: Final = 20
TURN_S: Final = 0.0025
STEP_LEAST_S: Final = 0.002
STEP_MOST_S: Final = 0.5


class Owner:
    """A node, in the contexts of its callbacks."""

    def __init__(self) -> None:
        self.is_paused = False
        self.held: list[_Held] = []


OWNER: Final[contextvars.ContextVar[Owner | None]] = contextvars.ContextVar("owner", default=None)


class _Held(NamedTuple):
    handle: asyncio.Handle
    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context

    def run(self) -> None:
        if not self.handle.cancelled():
            self.callback(*self.args)


class _Timer:
    """A timer of a node. It does not reference its handle, which references it: objects of a node end with the node."""

    def __init__(
        self, owner: Owner, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self._owner, self._callback, self._args, self._context = owner, callback, args, context
        self.handle: weakref.ref[asyncio.TimerHandle] | None = None

    def fire(self) -> None:
        handle = None if self.handle is None else self.handle()
        if self._owner.is_paused and handle is not None:
            self._owner.held.append(_Held(handle, self._callback, self._args, self._context))
        else:
            self._callback(*self._args)


class _Reader(NamedTuple):
    owner: Owner
    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context


def _ignore(wall_ms: int, running_ms: int) -> None:
    pass


class AdvancedTime:
    """The loop's time, which can be advanced. Timers follow."""

    def __init__(self, loop: NodesLoop, on_advanced: Callable[[int, int], object]) -> None:
        """`on_advanced` is called with the ms by which the time of day and the running time were advanced."""
        self._loop, self._on_advanced = loop, on_advanced
        self._calls: set[_Call] = set()
        self.ahead_s = 0.0

    def time(self) -> float:
        """The advanced time."""
        return self._loop.time() + self.ahead_s

    def call_at(self, when: float, callback: Callable[[], None], /) -> _Call:
        """Call back at that time."""
        call = _Call(when, callback, contextvars.copy_context(), self._calls)
        self._calls.add(call)
        self._arm(call)
        return call

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: all but the last minute at once, and that minute fast, with the nodes communicating."""
        at_once = max(seconds - QUICK_MOTION_S, 0.0)
        self._move(at_once, is_running=False)
        left, ready, seen = seconds - at_once, 0.0, self._loop.time()
        while left > 0:
            await asyncio.sleep(TURN_S if ready <= 0 else 0)
            next_due = self._next_due_in()
            if next_due <= 0:
                continue  # it is called in a turn of the loop
            now = self._loop.time()
            # The time that a starved process missed is not caught up: its requests need time too.
            ready, seen = min(ready + SPEED * (now - seen), STEP_MOST_S), now
            # To the next timer and no further: one that is late would be the sign of a pause.
            step = min(left, ready, max(next_due, STEP_LEAST_S))
            self._move(step, is_running=True)
            left, ready = left - step, ready - step
        while self._next_due_in() <= 0:  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0)

    def close(self) -> None:
        """Cancel everything and drop all references to the nodes: a closed loop may outlive them."""
        for call in list(self._calls):
            call.cancel()
        self._on_advanced = _ignore

    def _next_due_in(self) -> float:
        """Seconds until the next call that is not held back."""
        now = self.time()
        return min((call.when - now for call in self._calls if not call.is_held), default=math.inf)

    def _move(self, seconds: float, *, is_running: bool) -> None:
        before_ms = int(self.ahead_s * 1000)
        self.ahead_s += seconds
        passed_ms = int(self.ahead_s * 1000) - before_ms
        if passed_ms:
            self._on_advanced(passed_ms, passed_ms if is_running else 0)
        for call in list(self._calls):
            self._arm(call)

    def _arm(self, call: _Call) -> None:
        if call.handle is not None:
            call.handle.cancel()
        call.handle = self._loop.call_at(call.when - self.ahead_s, call.run, context=call.context)


class _Call:
    def __init__(
        self, when: float, callback: Callable[[], None], context: contextvars.Context, calls: set[_Call]
    ) -> None:
        self.when, self._callback, self.context, self._calls = when, callback, context, calls
        self.handle: asyncio.TimerHandle | None = None

    @property
    def is_held(self) -> bool:
        owner = self.context.get(OWNER)
        return owner is not None and owner.is_paused

    def run(self) -> None:
        self._calls.discard(self)
        self.handle = None
        self._callback()

    def cancel(self) -> None:
        self._calls.discard(self)
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class NodesLoop(asyncio.SelectorEventLoop):
    """A loop in which nodes can be paused, and time be advanced."""

    def __init__(self, on_advanced: Callable[[int, int], object] = _ignore) -> None:
        super().__init__()
        self.advanced: Final = AdvancedTime(self, on_advanced)
        self._paused = 0
        self._readers_of_nodes: dict[FileDescriptorLike, _Reader] = {}

    def close(self) -> None:
        """See `asyncio.loop.close`."""
        super().close()
        self.advanced.close()
        self._readers_of_nodes.clear()

    # Pauses

    def pause(self, owner: Owner) -> None:
        """Hold back the callbacks of a node, from the next turn of the loop on."""
        if owner.is_paused:
            return
        owner.is_paused = True
        self._paused += 1
        for fd in [fd for fd, reader in self._readers_of_nodes.items() if reader.owner is owner]:
            super().remove_reader(fd)

    def resume(self, owner: Owner) -> None:
        """Run the held callbacks in order, and continue."""
        if not owner.is_paused:
            return
        owner.is_paused = False
        self._paused -= 1
        held, owner.held = owner.held, []
        for one in held:
            super().call_soon(one.run, context=one.context)
        for fd, reader in list(self._readers_of_nodes.items()):
            if reader.owner is owner:
                self._add(fd, reader)

    # The loop

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        if self._paused:
            context = contextvars.copy_context() if context is None else context
            owner = context.get(OWNER)
            if owner is not None and owner.is_paused:
                handle = asyncio.Handle(callback, args, self, context)
                owner.held.append(_Held(handle, callback, args, context))
                return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`."""
        context = contextvars.copy_context() if context is None else context
        owner = context.get(OWNER)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)

        timer = _Timer(owner, callback, args, context)
        handle = super().call_at(when, timer.fire, context=context)
        timer.handle = weakref.ref(handle)
        return handle

    def add_reader(self, fd: FileDescriptorLike, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """See `asyncio.loop.add_reader`."""
        context = contextvars.copy_context()
        owner = context.get(OWNER)
        if owner is None:
            super().add_reader(fd, callback, *args)
            return
        reader = self._readers_of_nodes[fd] = _Reader(owner, callback, args, context)
        if not owner.is_paused:
            self._add(fd, reader)

    def remove_reader(self, fd: FileDescriptorLike) -> bool:
        """See `asyncio.loop.remove_reader`."""
        was_known = self._readers_of_nodes.pop(fd, None) is not None
        return super().remove_reader(fd) or was_known

    def _add(self, fd: FileDescriptorLike, reader: _Reader) -> None:
        reader.context.copy().run(super().add_reader, fd, reader.callback, *reader.args)
