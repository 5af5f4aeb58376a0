"""Regular expressions that were compiled, so that a thread can do it before the event loop needs one."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from klamm._engine.groups import TopicPattern

log: Final = logging.getLogger("klamm.coordinator")


@lru_cache(maxsize=64)
def compiled(pattern: str) -> TopicPattern | str:
    """The pattern, or why it cannot be compiled. From any thread."""
    try:
        return TopicPattern(pattern)
    except ValueError as error:
        return str(error)
    except Exception:  # a bug in the engine must not fail the shard that looks at the pattern
        log.exception("a bug in reading the pattern %r", pattern)
        return "it cannot be read"
