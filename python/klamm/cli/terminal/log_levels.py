"""Which of klamm's log lines are wanted: the keys `klamm.log.level` and `klamm.log.levels`."""

from __future__ import annotations

from typing import Final

from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.protocol.named_tuple import NamedTuple

# Python's numbers: `logging` itself is imported by who writes.
LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}


class LogLevels(NamedTuple):
    """The level of all of klamm, and of parts by the name of their logger."""

    whole: int
    parts: dict[str, int]


def log_levels(config: NodeConfig) -> LogLevels:
    """What the configuration says. Raises NodeConfigError."""
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
