"""The levels of klamm's loggers as Kafka's BROKER_LOGGER resources show and change them (KIP-412).

Kafka's `root` is klamm's own root logger: what else logs in this process is not a broker's business. A change lasts
until the process ends, and is for every node in it.
"""

from __future__ import annotations

import logging
from typing import Final

from klamm.config.broker_checks import check_is_this_node
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.configs import AlterableConfig, AlterConfigsResource, ConfigOperation

log = logging.getLogger("klamm.broker.loggers")

ROOT: Final = "root"
OURS: Final = "klamm"
TRACE: Final = 5
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """Kafka's name of a level, the next more severe one where Python's number lies between two."""
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")


def levels() -> dict[str, str]:
    """The effective level of every existing logger, by name."""
    names = sorted(logging.root.manager.loggerDict)
    found = [name for name in names if name.startswith(f"{OURS}.")]
    return {ROOT: _level(OURS)} | {name: _level(name) for name in found}


def _level(name: str) -> str:
    return level_name(logging.getLogger(name).getEffectiveLevel())


def alter(resource: AlterConfigsResource, node_id: int, *, validate_only: bool) -> None:
    """Set and unset levels, all or none. Raises INVALID_REQUEST, INVALID_CONFIG."""
    check_is_this_node(resource.resource_name, node_id)
    known = levels()
    for change in resource.configs:
        _check(change, known)
    if not validate_only:
        for change in resource.configs:
            _apply(change)


def _check(change: AlterableConfig, known: dict[str, str]) -> None:
    match change.config_operation:
        case ConfigOperation.SET:
            _check_exists(change.name, known)
            if change.value not in LEVELS:
                text = f"Logger {change.name} cannot log at {change.value}: levels are {', '.join(sorted(LEVELS))}."
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        case ConfigOperation.DELETE:
            _check_exists(change.name, known)
            if change.name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {ROOT} logger has to have a level.")
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of a logger is no list.")
        case other:
            # Kafka does not look, and answers as it does when it fails.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"There is no operation {other}.")


def _check_exists(name: str, known: dict[str, str]) -> None:
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"There is no logger {name}.")


def _apply(change: AlterableConfig) -> None:
    logger = logging.getLogger(OURS if change.name == ROOT else change.name)
    if change.config_operation == ConfigOperation.DELETE:
        logger.setLevel(logging.NOTSET)
        log.warning("Logger %s logs at the level of its parent", change.name)
    else:
        logger.setLevel(LEVELS[change.value or ""])
        log.warning("Logger %s logs at %s", change.name, change.value)
