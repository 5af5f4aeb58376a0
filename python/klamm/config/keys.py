"""The config keys of nodes, topics, groups and client metrics: the engine's table as mappings by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from klamm._engine.config import ConfigError, ConfigKey, config_keys, format_config, parse_config
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.value import Value

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

Keys = Mapping[str, ConfigKey]
ConfigValue = bool | int | float | str | list[str]

SCOPES: Final[Mapping[int, ConfigScope]] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "node",
    ResourceType.GROUP: "group",
    ResourceType.CLIENT_METRICS: "client-metrics",
}
"""The types of resources that store configs."""


@cache
def keys(scope: ConfigScope) -> Keys:
    """Every key of a scope, those of topics in the order of their names."""
    return {key.name: key for key in config_keys(scope)}


class Synonym(Value):
    """A node's key that provides the value of a topic's or a group's key, and the factor of its number."""

    name: str
    factor: int = 1


@cache
def synonyms(scope: ConfigScope) -> Mapping[str, tuple[Synonym, ...]]:
    """The node's keys that give a key its value when the resource has none; the first that is set wins."""
    return {name: tuple(Synonym(*each) for each in key.synonyms) for name, key in keys(scope).items()}


@cache
def units() -> Mapping[str, tuple[str, ...]]:
    """The node's keys that say the same in other units, in order of precedence.

    `log.flush.scheduler.interval.ms` is the default of `log.flush.interval.ms`, but not the other way round.
    """
    found: dict[str, tuple[str, ...]] = {}
    for topic_key in ("retention.ms", "segment.jitter.ms", "segment.ms"):
        names = tuple(synonym.name for synonym in synonyms("topic")[topic_key])
        found |= dict.fromkeys(names, names)
    found["log.flush.interval.ms"] = tuple(synonym.name for synonym in synonyms("topic")["flush.ms"])
    return found


def is_dynamic(name: str) -> bool:
    """Whether a node's key can be changed while the node runs."""
    key = keys("node").get(name)
    return key is not None and key.update_mode != "read-only"


def in_unit(text: str, factor: int) -> str:
    """A node's number in the unit of the key that it provides the value for; other text counts as 0, as in Kafka."""
    if factor == 1:
        return text
    try:
        return str(int(text) * factor)
    except ValueError:
        return "0"


def printed(scope: ConfigScope, name: str, text: str | None) -> str | None:
    """A value as Kafka shows it, e.g. ` 1 ` as `1`; unchanged if no key has the name or it cannot be parsed."""
    if text is None or name not in keys(scope):
        return text
    try:
        return format_config(scope, name, text)
    except ConfigError:
        return text


def number(scope: ConfigScope, name: str, text: str) -> int:
    """An integer key's value. Raises ConfigError."""
    value = parse_config(scope, name, text)
    assert isinstance(value, int), f"{name} is {value!r}"
    return value
