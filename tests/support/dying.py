"""Runs a function in its own process, which dies by SIGKILL at the nth change of the file system."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

WRITE = "open to write"
EVERY_CHANGE = frozenset({WRITE, "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.utime"})
"""Python's audit events for changes; changes by the engine are not among them."""
_CONTEXT = multiprocessing.get_context("forkserver")


def preload(modules: Sequence[str]) -> None:
    """Import these modules in every such process from the start. To be called before the first of them starts."""
    _CONTEXT.set_forkserver_preload([__name__, *modules])


def dies_at(step: int, changes: Collection[str], function: Callable[..., object], *arguments: object) -> bool:
    """Run it; return whether it was killed just before change number `step`, from 0. Fails when it ends otherwise."""
    process = _CONTEXT.Process(target=_run, args=(step, changes, function, arguments))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def _run(step: int, changes: Collection[str], function: Callable[..., object], arguments: Sequence[object]) -> None:
    left = step
    sys.dont_write_bytecode = True  # byte code that an import writes is not a change by the function

    def hook(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR):
            event = WRITE
        if event in changes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    function(*arguments)
