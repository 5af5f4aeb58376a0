"""Regular expressions that were compiled, so that a thread can do it before the event loop needs one."""

from __future__ import annotations

from functools import lru_cache

from klamm._engine.groups import TopicPattern


@lru_cache(maxsize=64)
def compiled(pattern: str) -> TopicPattern | str:
    """The pattern, or why it cannot be compiled. From any thread."""
    try:
        return TopicPattern(pattern)
    except ValueError as error:
        return str(error)
