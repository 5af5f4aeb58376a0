"""Listeners that are opened, closed and limited at run time by dynamic configs (KIP-226, KIP-402)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from klamm._engine.node import Engine
from klamm.config.node_config import NodeConfig, NodeConfigError, parse
from klamm.config.rules import check_supported, checked
from klamm.node.boot import listener_row
from klamm.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger("klamm.node.listeners")


def check_listeners(config: NodeConfig, values: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST if `values`, of the file and dynamic, are not valid for the running node of `config`."""
    try:
        proposed = checked(values)
        check_supported(proposed)
    except NodeConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    missing = {one.name for one in config.advertised_brokers} - {one.name for one in proposed.listeners}
    if missing:
        names = ", ".join(sorted(missing))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"advertised listeners must exist, and {names} is not in listeners")


class DynamicListeners:
    """The listeners of a running node, according to its dynamic configs."""

    def __init__(self, config: NodeConfig, engine: Engine, bound: Mapping[str, tuple[str, int]]) -> None:
        """`bound` is the address of each listener of the file."""
        self._config = config
        self._engine = engine
        self._text = config.given.get("listeners")
        self._controllers = frozenset(config.controller_listener_names)
        self._names = bound.keys() - self._controllers
        self._is_serving = False

    def follow(self, values: Mapping[str, str]) -> None:
        """Apply new values: those of the file, overridden by dynamic ones."""
        if values.get("listeners") != self._text:
            self._text = values.get("listeners")
            self._change(values)
        self._engine.set_listener_limits(
            most=self._limits(values, "max.connections"),
            creation_rate=self._limits(values, "max.connection.creation.rate"),
            inter_broker=self._config.inter_broker_listener_name,
        )

    def serve(self) -> None:
        """The node serves clients from now on: apply the values that were followed before."""
        self._is_serving = True
        for name in self._names:
            self._engine.open(name)

    def _change(self, values: Mapping[str, str]) -> None:
        """Close and open listeners; one that is in both sets is not changed, as in Apache Kafka (KIP-226)."""
        try:
            wanted = {listener.name: listener for listener in parse(values).client_listeners}
        except NodeConfigError as error:
            log.error("the listeners are not changed: %s", error)
            return
        for name in sorted(self._names - wanted.keys()):
            self._engine.close_listener(name)
            log.info("closed listener %s", name)
        added = sorted(wanted.keys() - self._names)
        self._names &= wanted.keys()
        for name in added:
            try:
                host, port = self._engine.listen(listener_row(self._config, wanted[name]))
            except OSError as error:
                log.error("listener %s could not be opened: %s", name, error)
                continue
            self._names |= {name}
            log.info("opened listener %s on %s:%d", name, host, port)
            if self._is_serving:
                self._engine.open(name)

    def _limits(self, values: Mapping[str, str], key: str) -> dict[str, int]:
        """The values of `listener.name.<listener>.<key>` by listener."""
        places = {name: f"listener.name.{name.lower()}.{key}" for name in self._names | self._controllers}
        return {name: int(values[place].strip()) for name, place in places.items() if place in values}
