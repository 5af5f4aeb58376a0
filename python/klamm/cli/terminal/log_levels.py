"""The log levels of klamm: the keys `klamm.log.level` and `klamm.log.levels`."""

from __future__ import annotations

from typing import Final

from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.protocol.value import Value

# Python's numbers: `logging` itself is imported only by modules that log.
LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}


class LogLevels(Value):
    """The level of klamm, and of its parts by logger name."""

    whole: int
    parts: dict[str, int]


def log_levels(config: NodeConfig) -> LogLevels:
    """The log levels of the configuration. Raises NodeConfigError."""
    entries = config.entries("klamm.log.levels")
    return LogLevels(LEVELS[config.text("klamm.log.level").upper()], dict(map(_part, entries)))


def _part(entry: str) -> tuple[str, int]:
    name, equals, level = entry.partition("=")
    if not equals or level.strip().upper() not in LEVELS:
        raise NodeConfigError(
            f"Invalid value {entry} for configuration klamm.log.levels: it must be name=LEVEL,... "
            f"with a level of {', '.join(LEVELS)}"
        )
    return name.strip(), LEVELS[level.strip().upper()]
