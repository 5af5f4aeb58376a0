"""What a node itself checks in config changes before the controller stores them (KIP-226).

The controller does not know another node's file, so each node rejects what it could not apply: keys that cannot change
while it runs, values of the wrong type, large changes of the number of threads. All of these are INVALID_REQUEST, as in
Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm._engine.config import ConfigError, parse_config
from klamm.config.keys import ConfigValue, is_dynamic, keys
from klamm.config.values import NodeLayers, base_name, node_values
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.value import Value

LISTENER_ONLY_KEYS: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that can be changed for one listener only, with the prefix `listener.name.<listener>.`."""

LISTENER_MAPS: Final = frozenset({"listener.security.protocol.map", "listeners"})
"""Keys that say together which listeners a node has."""

THREAD_COUNTS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Numbers of threads, which may be halved or doubled at once, not more."""

_LISTENER_PREFIX: Final = "listener.name."
_CLUSTER_WIDE_LISTENER_KEYS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)


CheckListeners = Callable[[Mapping[str, str]], None]
"""Raises KafkaError unless a node could listen as these values say: its file's with the dynamic ones over them."""


def check_dynamic_configs(
    layers: NodeLayers,
    configs: Mapping[str, str],
    *,
    is_per_broker: bool,
    check_listeners: CheckListeners | None = None,
) -> None:
    """Raises INVALID_REQUEST unless this node could run with `configs` as its dynamic ones.

    `configs` is all that will be set, for this node or, not `is_per_broker`, for the cluster. Names that no key has are
    let through, as in Kafka.
    """
    read_only = [name for name in configs if name in keys("node") and not is_dynamic(name)]
    _refuse(read_only, "These configs cannot change while a broker runs")
    without_listener = [name for name in configs if name in LISTENER_ONLY_KEYS]
    _refuse(without_listener, "These configs can change for one listener only, as listener.name.<listener>.<config>")
    for name, value in configs.items():
        if is_dynamic(base_name(name)):
            _parsed(base_name(name), value)
    if not is_per_broker:
        per_broker = [name for name in configs if _is_per_broker(name)]
        _refuse(per_broker, "These configs belong to one broker: name its id")
    _check_reconfiguration(layers, configs, is_per_broker=is_per_broker)
    if check_listeners is not None and not LISTENER_MAPS.isdisjoint(configs):
        check_listeners(node_values(NodeLayers(layers.static, layers.cluster, configs)))


def _refuse(names: Iterable[str], why: str) -> None:
    if listed := ", ".join(sorted(names)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{listed}]")


def _is_per_broker(name: str) -> bool:
    base = base_name(name)
    if name.startswith(_LISTENER_PREFIX):
        return base not in _CLUSTER_WIDE_LISTENER_KEYS
    return base in keys("node") and keys("node")[base].update_mode == "per-broker"


def _parsed(name: str, text: str) -> ConfigValue:
    try:
        return parse_config("node", name, text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


class _NodeConfig:
    """A node's typed values, layered."""

    def __init__(self, layers: NodeLayers) -> None:
        self._values = node_values(layers)

    def text(self, name: str) -> str | None:
        return self._values.get(name, keys("node")[name].default)

    def number(self, name: str) -> int:
        found = _parsed(name, self.text(name) or "")
        assert isinstance(found, int), f"{name} is {found!r}"
        return found

    def set_as(self, *names: str) -> Iterable[tuple[str, int]]:
        """The integers of these keys, for the node and for individual listeners."""
        for name, text in self._values.items():
            if base_name(name) in names:
                found = _parsed(base_name(name), text)
                assert isinstance(found, int), f"{name} is {found!r}"
                yield name, found

    def entries(self, name: str) -> list[str]:
        text = self.text(name)
        found = [] if text is None else _parsed(name, text)
        assert isinstance(found, list), f"{name} is {found!r}"
        return found


def _check_reconfiguration(layers: NodeLayers, configs: Mapping[str, str], *, is_per_broker: bool) -> None:
    if is_per_broker:
        proposed = _NodeConfig(NodeLayers(layers.static, layers.cluster, configs))
    else:
        proposed = _NodeConfig(NodeLayers(layers.static, configs, layers.node))
    current = _NodeConfig(layers)
    for name in THREAD_COUNTS:
        _check_thread_count(name, current.number(name), proposed.number(name))
    dirs = proposed.entries("log.dirs") or proposed.entries("log.dir")
    unknown = [each for each in proposed.entries("cordoned.log.dirs") if each not in (*dirs, "*")]
    _refuse(unknown, "Every entry of cordoned.log.dirs must be one of log.dirs; these are not")
    _check_limits(proposed)
    _check_times(proposed)
    for unit in ("bytes", "ms"):
        _check_local_retention(proposed, f"log.local.retention.{unit}", f"log.retention.{unit}")


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _check_limits(node: _NodeConfig) -> None:
    for name, value in node.set_as("max.connections", "max.connection.creation.rate"):
        _require(value > 0, f"{name}={value} would let no client connect: it must be at least 1")
    name = "max.connections.per.ip.overrides"
    overrides = [entry.strip() for entry in (node.text(name) or "").split(",") if entry.strip()]
    for entry in overrides:
        host, _, count = entry.rpartition(":")
        _require(bool(host) and count.isdecimal(), f"{name} takes host:count,..., which {entry} is not")
    is_closed = node.number("max.connections.per.ip") == 0 and not overrides
    _require(not is_closed, f"max.connections.per.ip=0 needs {name}, or no client can connect")
    buffer, threads = node.number("log.cleaner.dedupe.buffer.size"), node.number("log.cleaner.threads")
    _require(
        threads == 0 or buffer // threads > 1 << 20,
        f"log.cleaner.dedupe.buffer.size={buffer} must be more than 1 MiB for each of log.cleaner.threads={threads}",
    )


def _check_times(node: _NodeConfig) -> None:
    roll, retention, jitter = (node.text(f"log.{name}.ms") for name in ("roll", "retention", "roll.jitter"))
    _require(roll is None or int(roll) >= 1, f"log.roll.ms={roll} must be at least 1")
    _require(retention is None or int(retention) != 0, "log.retention.ms=0 must be at least 1, or negative for ever")
    _require(jitter is None or int(jitter) >= 0, f"log.roll.jitter.ms={jitter} must not be negative")
    shortest, longest = (node.number(f"log.cleaner.{name}.compaction.lag.ms") for name in ("min", "max"))
    _require(shortest <= longest, f"log.cleaner.min.compaction.lag.ms={shortest} is more than its max, {longest}")


def _check_thread_count(name: str, old: int, new: int) -> None:
    if new == old:
        return
    failed = f"{name}={new} is too far from the present {old}: it must"
    if new < 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{failed} be at least 1")
    if new < old // 2:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{failed} be at least half of it")
    if new > old * 2:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{failed} be at most twice as many")


def _check_local_retention(node: _NodeConfig, local_name: str, whole_name: str) -> None:
    """The local retention must not exceed the total retention; -2 means the total, -1 has no limit."""
    if node.text(whole_name) is None:
        return
    local, whole = node.number(local_name), node.number(whole_name)
    if whole < 0 or local == -2:
        return
    invalid = f"Invalid value {local} for configuration {local_name}: must not be"
    if local == -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{invalid} -1 while {whole_name} is {whole}")
    if local > whole:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{invalid} more than {whole_name}, which is {whole}")


class Preprocessed(Value):
    """The results that a node has itself, by the resource's index in the request, and the resources to forward."""

    errors: Mapping[int, KafkaError]
    settled: frozenset[int]
    """Completed changes of loggers: no controller is asked."""
    forward: tuple[AlterConfigsResource, ...]


AlterLoggers = Callable[[AlterConfigsResource], None]
"""Changes the levels of this node's loggers. Raises KafkaError."""


def preprocess(
    resources: tuple[AlterConfigsResource, ...],
    node_id: int,
    layers: NodeLayers,
    *,
    is_incremental: bool,
    alter_loggers: AlterLoggers | None = None,
    check_listeners: CheckListeners | None = None,
) -> Preprocessed:
    """Check AlterConfigs or IncrementalAlterConfigs on the node that was asked, before the controller is.

    Loggers are changed by `alter_loggers` on the way, in their turn; legacy AlterConfigs knows none.
    """
    places: dict[tuple[int, str], list[int]] = {}
    for place, resource in enumerate(resources):
        places.setdefault((resource.resource_type, resource.resource_name), []).append(place)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "The resource is in the request more than once.")
    errors = {place: twice for same in places.values() if len(same) > 1 for place in same}
    settled: set[int] = set()
    for place, resource in enumerate(resources):
        if place not in errors:
            try:
                _check_changes(resource)
                if resource.resource_type == ResourceType.BROKER_LOGGER and alter_loggers is not None:
                    alter_loggers(resource)
                    settled.add(place)
                else:
                    _check_resource(
                        resource, node_id, layers, is_incremental=is_incremental, check_listeners=check_listeners
                    )
            except KafkaError as error:
                errors[place] = error
    done = errors.keys() | settled
    rest = tuple(resource for place, resource in enumerate(resources) if place not in done)
    return Preprocessed(errors, frozenset(settled), rest)


def _check_changes(resource: AlterConfigsResource) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A config is in the request more than once.")
    without_value = [
        c.name for c in resource.configs if c.value is None and c.config_operation != ConfigOperation.DELETE
    ]
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"These configs have no value: {', '.join(without_value)}")


def _check_resource(
    resource: AlterConfigsResource,
    node_id: int,
    layers: NodeLayers,
    *,
    is_incremental: bool,
    check_listeners: CheckListeners | None,
) -> None:
    match resource.resource_type:
        case ResourceType.TOPIC | ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            return
        case ResourceType.BROKER:
            _check_broker_resource(
                resource, node_id, layers, is_incremental=is_incremental, check_listeners=check_listeners
            )
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")


def _check_broker_resource(
    resource: AlterConfigsResource,
    node_id: int,
    layers: NodeLayers,
    *,
    is_incremental: bool,
    check_listeners: CheckListeners | None,
) -> None:
    name = resource.resource_name
    if name:
        check_is_this_node(name, node_id)
    stored = layers.node if name else layers.cluster
    base = dict(stored) if is_incremental else {}
    proposed = _altered(base, resource.configs)
    check_dynamic_configs(layers, proposed, is_per_broker=bool(name), check_listeners=check_listeners)


def check_is_this_node(name: str, node_id: int) -> None:
    """Raises INVALID_REQUEST unless `name` is this node's id: a node's configs are changed through itself."""
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A broker is named by its id, not '{name}'.")
    if int(name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"This is broker {node_id}: send what is meant for broker {name} to it."
        )


def _altered(values: dict[str, str], changes: Iterable[AlterableConfig]) -> dict[str, str]:
    for change in changes:
        match change.config_operation:
            case ConfigOperation.SET:
                values[change.name] = change.value or ""
            case ConfigOperation.DELETE:
                values.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                values[change.name] = _changed_list(change, values.get(change.name))
            case other:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {other}")
    return values


def _changed_list(change: AlterableConfig, current: str | None) -> str:
    key = keys("node").get(change.name)
    operation = ConfigOperation(change.config_operation)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
    if key.type != "LIST":
        text = f"{operation.name} needs a list, which {change.name} is not."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    return changed_list(operation, key.default if current is None else current, change.value or "")


def changed_list(operation: ConfigOperation, current: str | None, items: str) -> str:
    """A list's text after APPEND, which adds missing values, or SUBTRACT."""
    parts = [part for part in (current or "").split(",") if part]
    for item in items.split(","):
        if operation is ConfigOperation.SUBTRACT:
            if item in parts:
                parts.remove(item)
        elif item not in parts:
            parts.append(item)
    return ",".join(parts)
