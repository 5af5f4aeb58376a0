"""kio's message classes, imported when they are asked for, and without what kio would bring along.

Where `hypothesis` is installed, which is where tests are, kio imports it to register strategies for its own types: half
a second, in which the first request waits. It does without when there is none, so here there is none for it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

MessageClass = Any
"""One of kio's message classes, or of the structures inside; or one of ours. They share no base class."""


@cache
def request_class(api_key: int, version: int) -> MessageClass:
    """kio's class of a request; raises `kio.index.KioIndexError` for a version that kio does not know."""
    return _index().load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> MessageClass:
    """kio's class of a response; raises `kio.index.KioIndexError` for a version that kio does not know."""
    return _index().load_response_schema(api_key, version)


@cache
def data_class(module: str, name: str, version: int) -> MessageClass:
    """kio's class of a message that is no API's: what goes inside of other messages as bytes."""
    _index()
    return getattr(importlib.import_module(f"kio.schema.{module}.v{version}.data"), name)


@cache
def _index() -> ModuleType:
    with _without_hypothesis():
        # The package's types; everything of kio's imports them.
        import kio.index
        import kio.static.primitive
    return kio.index


@contextlib.contextmanager
def _without_hypothesis() -> Iterator[None]:
    finder = _HypothesisIsNotThere()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _HypothesisIsNotThere:
    """A finder of modules that comes before the others; for this thread alone."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for the one name; None leaves it to the other finders."""
        if name == "hypothesis" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
