"""Settings of a process that runs only a node: a fast start, garbage collection, and signals."""

from __future__ import annotations

import gc
import signal
import sys
from _thread import RLock
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

    from klamm.driving.deadlines import Deadlines

LATER: Final = frozenset(
    {
        "asyncio.sslproto",
        "asyncio.staggered",
        "copy",
        "fnmatch",
        "inspect",
        "ipaddress",
        "linecache",
        "locale",
        "ntpath",
        "textwrap",
    }
)
"""Modules that asyncio, logging, dataclasses and pathlib import for rare cases: loaded on first access."""


COLLECTION_THRESHOLDS: Final = (500, 1, 1_000)
"""Of the garbage collector's generations.

A collection holds up the event loop in proportion to the objects that it visits, and nearly all of them stay. Python
counts allocations minus deallocations: while new values replace older ones, as the targets of a group, a generation has
far more objects than its threshold says. So the first two are small; each object is visited once in either all the
same."""
COLLECTIONS_BEFORE_FULL: Final = 100
"""Collections of the second generation before one of all objects, if the loop is quiet and the last one was worth it.
"""
WORTH_IT: Final = 10_000
"""Garbage that a collection of all objects has to find, in objects. If it finds less, the next one waits for twice as
many collections: it visits up to a million objects."""
COLLECTIONS_MAX: Final = 3_000
"""Collections of the second generation before one of all objects."""
LOOK_MS: Final = 10_000
QUIET_MAX: Final = 10
"""Collections of the second generation within this time if the loop is quiet.

20,000 heartbeats without news cause about that many, and a new target for 10,000 members of 100 groups five times as
many. Processor time would say little: on a busy machine, a loop that has much to do gets little of it."""


def begin() -> None:
    """Call it before any expensive import."""
    # Objects created by the start live on: collecting them repeatedly would cost a tenth of the start.
    gc.disable()
    sys.meta_path.insert(0, _LazyFinder)


def import_asyncio() -> None:
    """Import asyncio without OpenSSL: its streams are not used here, and TLS is the engine's."""
    if "ssl" not in sys.modules and "asyncio" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        try:
            import asyncio  # noqa: F401
        finally:
            del sys.modules["ssl"]


def settle() -> None:
    """Call it when the node serves or has failed: collect garbage from now on, only among new objects."""
    if _LazyFinder in sys.meta_path:
        sys.meta_path.remove(_LazyFinder)
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    gc.enable()


def serve() -> None:
    """Call it in the loop of a node that serves: as `settle`, and collect all garbage while the loop is quiet."""
    from klamm.driving.deadlines import Deadlines

    settle()
    FullCollections(Deadlines()).start()


class FullCollections:
    """Collects all garbage while the event loop has little to do, and keeps the collector from doing so.

    This takes as long as there are objects: 50 to 270 ms with 10,000 members of groups. So the objects that survive the
    second generation are frozen. Not for good: the groups of a partition that is no longer led here are a reference
    cycle.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._count = self._count_before = 0
        """Collections of the second generation since the last one of all objects, now and at the last look."""
        self._count_before_full = COLLECTIONS_BEFORE_FULL

    def start(self) -> None:
        """Work as long as the loop runs."""
        gc.callbacks.append(self._on_collection)
        self._deadlines.add(LOOK_MS, self._look)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == 1:
            self._count += 1
            gc.freeze()

    def _look(self) -> None:
        is_quiet = self._count - self._count_before <= QUIET_MAX
        if self._count >= (self._count_before_full if is_quiet else COLLECTIONS_MAX):
            self._collect()
        self._count_before = self._count
        self._deadlines.add(LOOK_MS, self._look)

    def _collect(self) -> None:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._count = 0
        rarer = min(2 * self._count_before_full, COLLECTIONS_MAX)
        self._count_before_full = rarer if found < WORTH_IT else COLLECTIONS_BEFORE_FULL


class _LazyFinder:
    """Finds the modules of `LATER` and loads them on first access.

    Like `importlib.util.LazyLoader`, but a second `import` is not an access, and two threads may access a module at
    once.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _LazyLoader(spec.loader))
        return spec


class _LazyLoader:
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        _unloaded[module.__name__] = module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__class__ = _Unloaded


_unloaded: Final[dict[str, Loader]] = {}
_loading: Final = RLock()


class _Unloaded(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        if name != "__spec__":  # which `import` reads
            with _loading:
                loader = _unloaded.pop(ModuleType.__getattribute__(self, "__name__"), None)
                if loader is not None:
                    loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
        # Not `super()`: the object is no longer an instance of this class.
        return ModuleType.__getattribute__(self, name)


class StopSignals:
    """Handles SIGINT, SIGTERM and, like Apache Kafka, SIGHUP (unless it is ignored, as with `nohup`).

    It works before there is a node to stop. The first signal is passed on, the second has its default effect.
    """

    def __init__(self) -> None:
        """Install the handlers. Call it on the main thread."""
        self._has_signal = False
        self._callback: Callable[[], object] | None = None
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in numbers}

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call `callback` at the first signal, also while other code runs; at once if it has already arrived."""
        self._callback = callback
        if self._has_signal:
            callback()

    def restore(self) -> None:
        """Restore the previous handlers."""
        self._callback = None
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        callback, self._has_signal = self._callback, True
        self.restore()
        if callback is not None:
            callback()
