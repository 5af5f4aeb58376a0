"""Ranges of keys for which Apache Kafka has none, or a wider one: outside of them a klamm node could not serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.config.node_config import NodeConfig, NodeConfigError

LEAST: Final[Mapping[str, int]] = {
    "broker.heartbeat.interval.ms": 1,
    "broker.session.timeout.ms": 1,
    "initial.broker.registration.timeout.ms": 1,
    "max.connections": 1,
    "request.timeout.ms": 1,
    "socket.request.max.bytes": 1024,
}
"""The least value of each key."""


def check_ranges(config: NodeConfig) -> None:
    """Raises NodeConfigError that names key, value and range."""
    for name, least in LEAST.items():
        value = config.integer(name)
        if value < least:
            raise NodeConfigError(f"Invalid value {value} for configuration {name}: Value must be at least {least}")
