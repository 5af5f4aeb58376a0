"""Lets the engine panic at the next call of a function, however it is called.

It stands for every exception that is a bug: a call of the engine raises one that only `except Exception` contains.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from klamm._engine.panics import EnginePanicError, panic_with

INJECTED = "injected for the test"


class InjectedError(Exception):
    """What a test injects."""


_HOOKS: dict[str, Callable[..., Any]] = {}
"""By module and qualified name of the function, what runs in its place."""


@contextlib.contextmanager
def injected_into(function: FunctionType, when: Callable[..., bool] = lambda *_: True) -> Iterator[threading.Event]:
    """Within the block, the next call for which `when` returns true panics; the event is then set.

    The code of the function is replaced, because callbacks are often bound long before a test begins.
    """
    code, raised = function.__code__, threading.Event()
    found = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    found.__kwdefaults__ = function.__kwdefaults__

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not raised.is_set() and when(*args):
            raised.set()
            panic_with(INJECTED)
        return found(*args, **kwargs)

    key = f"{function.__module__}.{function.__qualname__}"
    _HOOKS[key] = hook
    function.__code__ = _calling_hook(key, code.co_freevars)
    try:
        yield raised
    finally:
        function.__code__ = code
        del _HOOKS[key]


def _calling_hook(key: str, free_variables: tuple[str, ...]) -> Any:
    """Code that calls the hook. It has the free variables of the function, which Python compares."""
    made: dict[str, Any] = {}
    names = ", ".join(free_variables)
    text = f"""
def outer({names}):
    def calling(*args, **kwargs):
        ({names})
        from {__name__} import _HOOKS
        return _HOOKS[{key!r}](*args, **kwargs)
    return calling
"""
    exec(text, made)
    calling: FunctionType = made["outer"](*free_variables)
    return calling.__code__


def injected(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The log records that have what was injected as their cause."""
    causes = (InjectedError, EnginePanicError)
    return [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], causes)]
