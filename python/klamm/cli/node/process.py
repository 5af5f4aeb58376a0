"""What a process that is a node, and nobody's guest, does so as to serve sooner, and to end as it is told."""

from __future__ import annotations

import gc
import signal
import sys
from _thread import RLock
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

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
"""What asyncio, logging, dataclasses and pathlib import for what a node does seldom: loaded when it is looked into."""


ALLOCATIONS_BEFORE_COLLECTION: Final = 10_000
"""Containers that were made and not freed before the collector looks at them. Python's default is 700, which the
requests of one turn of the loop can reach."""


def begin() -> None:
    """To be called before anything dear is imported."""
    # What a start makes stays: a collector that goes over it again and again costs a tenth of the time.
    gc.disable()
    sys.meta_path.insert(0, _LazyFinder)


def import_asyncio() -> None:
    """Without OpenSSL, as where there is none: its streams are not used here, and TLS is the engine's."""
    if "ssl" not in sys.modules and "asyncio" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        try:
            import asyncio  # noqa: F401
        finally:
            del sys.modules["ssl"]


def settle() -> None:
    """To be called when the node serves, or will not: from now on garbage is collected, among what comes."""
    if _LazyFinder in sys.meta_path:
        sys.meta_path.remove(_LazyFinder)
    gc.freeze()
    # Hundreds of requests are under way at a time, and hardly anything of theirs refers to itself.
    gc.set_threshold(ALLOCATIONS_BEFORE_COLLECTION, *gc.get_threshold()[1:])
    gc.enable()


class _LazyFinder:
    """Finds the modules of `LATER` and leaves their loading to the first look at them.

    As `importlib.util.LazyLoader`, but a second `import` is no look, and two threads may look at once.
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
        if name != "__spec__":  # which `import` looks at
            with _loading:
                loader = _unloaded.pop(ModuleType.__getattribute__(self, "__name__"), None)
                if loader is not None:
                    loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
        # Not of `super()`: it is no object of this class any more.
        return ModuleType.__getattribute__(self, name)


class StopSignals:
    """SIGINT, SIGTERM and, as with Apache Kafka, SIGHUP (unless it is ignored, as `nohup` does), from before there is a
    node to stop: the first is passed on, the second is not ours.
    """

    def __init__(self) -> None:
        """From now on. On the main thread."""
        self._is_told = False
        self._tell: Callable[[], object] | None = None
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in numbers}

    def on_stop(self, tell: Callable[[], object]) -> None:
        """Call `tell` when the first one comes, in the midst of whatever runs; at once if it has come."""
        self._tell = tell
        if self._is_told:
            tell()

    def forget(self) -> None:
        """Everything as it was."""
        self._tell = None
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        tell, self._is_told = self._tell, True
        self.forget()
        if tell is not None:
            tell()
