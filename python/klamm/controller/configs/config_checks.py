"""The checks on a resource's configs before the controller stores them (`ControllerConfigurationValidator`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm._engine.config import ConfigError, parse_config
from klamm.config.keys import ConfigValue, keys, number
from klamm.config.values import NodeLayers, group_default, node_values, topic_defaults
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.topic_names import check_topic_name

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

Configs = Mapping[str, str]

_MATCH_PARAMETERS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_configs(layers: NodeLayers, resource: tuple[int, str], configs: Configs, existing: Configs) -> None:
    """Raises the first error in `configs`, all of the configs that the resource would have."""
    resource_type, name = resource
    match resource_type:
        case ResourceType.TOPIC:
            check_topic_resource(name)
            check_topic_configs(layers, configs, existing)
        case ResourceType.BROKER:
            check_broker_name(name)
        case ResourceType.CLIENT_METRICS:
            check_client_metrics(name, configs)
        case ResourceType.GROUP:
            check_group(layers, name, configs)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")


def check_topic_resource(name: str) -> None:
    """Raises INVALID_REQUEST or INVALID_TOPIC_EXCEPTION for a name that no topic has."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Name a topic: there are no defaults for all topics.")
    check_topic_name(name)


def check_broker_name(name: str) -> None:
    """Raises INVALID_REQUEST unless the name is empty, for the cluster, or a node id."""
    if not name:
        return
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", name) or int(name) >= 1 << 31:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A broker is named by its id, not '{name}'.")
    if int(name) < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A broker's id is not negative, as {name} is.")


def _parsed(scope: ConfigScope, name: str, text: str) -> ConfigValue:
    try:
        return parse_config(scope, name, text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_topic_configs(layers: NodeLayers, configs: Configs, existing: Configs) -> None:
    """Raises INVALID_CONFIG for an unknown key, a value that is not allowed, or two values that conflict."""
    values = TopicValues(layers, {name: _parsed("topic", name, value) for name, value in configs.items()})
    values.check_compaction_lags()
    values.check_remote_storage(existing)


class TopicValues:
    """The typed values that a topic would work with: given, or the node's."""

    def __init__(self, layers: NodeLayers, given: Mapping[str, ConfigValue]) -> None:
        self.given = given
        self._layers = layers

    def _numbers(self, *names: str) -> list[int]:
        defaults = topic_defaults(self._layers)
        values = [self.given.get(name, number("topic", name, defaults[name] or "")) for name in names]
        return [value for value in values if isinstance(value, int)]

    def check_compaction_lags(self) -> None:
        """A record must not be due for compaction before it may be compacted."""
        lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
        if not any(name in self.given for name in lags):
            return
        low, high = self._numbers(*lags)
        if low > high:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"conflict topic config setting {lags[0]} ({low}) > {lags[1]} ({high})"
            )

    def check_remote_storage(self, existing: Configs) -> None:
        """Tiered storage, which this node does not have: a topic cannot turn it on, nor leave it half off."""
        if self.given.get("remote.storage.enable") is True:
            text = "This cluster has no tiered storage: remote.storage.enable must stay false."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        was_enabled = existing.get("remote.storage.enable", "false").lower() == "true"
        if was_enabled and self.given.get("remote.log.delete.on.disable") is not True:
            text = (
                "Remote storage cannot be turned off while its data is kept: set remote.log.delete.on.disable=true to "
                "delete it, or keep remote.storage.enable=true with remote.log.copy.disable=true to keep it readable."
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def check_client_metrics(name: str, configs: Configs) -> None:
    """Raises INVALID_REQUEST or INVALID_CONFIG for a client metrics subscription (KIP-714)."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Name a subscription: there are no defaults for all of them.")
    for key_name in configs:
        if key_name not in keys("client-metrics"):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Client metrics have no config {key_name}.")
    values = {key_name: _parsed("client-metrics", key_name, value) for key_name, value in configs.items()}
    interval_ms = values.get("interval.ms")
    if isinstance(interval_ms, int) and not 100 <= interval_ms <= 3_600_000:
        text = (
            f"Invalid value {interval_ms} for configuration interval.ms: between 100 and 3600000 (an hour) is allowed"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    patterns = values.get("match")
    for pattern in patterns if isinstance(patterns, list) else ():
        _check_match(pattern)


def _check_match(pattern: str) -> None:
    parameter, *rest = pattern.split("=")
    if len(rest) == 1 and rest[0] and parameter.strip() in _MATCH_PARAMETERS:
        try:
            re.compile(rest[0].strip())
        except re.error:
            pass
        else:
            return
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"match takes <parameter>=<regular expression>, not '{pattern}'.")


_LIMITED_GROUP_KEYS: Final = (
    ("consumer", "heartbeat.interval.ms"),
    ("consumer", "session.timeout.ms"),
    ("consumer", "assignment.interval.ms"),
    ("share", "heartbeat.interval.ms"),
    ("share", "session.timeout.ms"),
    ("share", "record.lock.duration.ms"),
    ("share", "delivery.count.limit"),
    ("share", "partition.max.record.locks"),
    ("share", "assignment.interval.ms"),
    ("streams", "heartbeat.interval.ms"),
    ("streams", "session.timeout.ms"),
    ("streams", "assignment.interval.ms"),
)
"""Keys of a group, `<kind>.<key>`, that the node's `group.<kind>.min.<key>` and `group.<kind>.max.<key>` bound."""


def check_group(layers: NodeLayers, name: str, configs: Configs) -> None:
    """Raises INVALID_REQUEST or INVALID_CONFIG for a group's configs (KIP-848, KIP-932, KIP-1071)."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Name a group: there are no defaults for all groups.")
    values = GroupValues(layers, {key: _parsed("group", key, value) for key, value in configs.items()})
    for kind, key in _LIMITED_GROUP_KEYS:
        values.check_at_least(f"{kind}.{key}", f"group.{kind}.min.{key}")
        values.check_at_most(f"{kind}.{key}", f"group.{kind}.max.{key}")
    values.check_at_most("streams.num.standby.replicas", "group.streams.max.standby.replicas")
    for kind in ("consumer", "share", "streams"):
        values.check_above(f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")


class GroupValues:
    """A group's typed values, held against the node's limits and each other."""

    def __init__(self, layers: NodeLayers, given: Mapping[str, ConfigValue]) -> None:
        self._node = node_values(layers)
        self._given = given

    def _limit(self, name: str) -> int:
        return number("node", name, self._node.get(name, keys("node")[name].default or ""))

    def _effective(self, name: str) -> int:
        value = self._given.get(name)
        return value if isinstance(value, int) else number("group", name, group_default(self._node, name) or "")

    def check_at_least(self, name: str, limit_name: str) -> None:
        """Raises INVALID_CONFIG for a given value below the node's limit."""
        value = self._given.get(name)
        if isinstance(value, int) and value < self._limit(limit_name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {limit_name}")

    def check_at_most(self, name: str, limit_name: str) -> None:
        """Raises INVALID_CONFIG for a given value above the node's limit."""
        value = self._given.get(name)
        if isinstance(value, int) and value > self._limit(limit_name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {limit_name}")

    def check_above(self, name: str, other_name: str) -> None:
        """Raises INVALID_CONFIG unless one value exceeds the other, given or not."""
        if self._effective(name) <= self._effective(other_name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than {other_name}")
