"""Which of its sources gives a config its value.

A node's key is looked up in four layers, the first that has it wins: dynamic of this node, dynamic default of the
cluster, the node's file, Kafka's default. A topic's key comes from the topic, else from the node's keys that stand in
for it. Everything here is a pure function of those layers, whose values are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from klamm.config.keys import in_unit, keys, synonyms, units
from klamm.protocol.messages.configs import ConfigSource
from klamm.protocol.value import Value, field

Values = Mapping[str, str]
NO_VALUES: Final[Values] = {}

_LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys with a listener and a mechanism as prefix: `listener.name.<listener>.<mechanism>.<key>`."""


class NodeLayers(Value):
    """The configs of a node by layer."""

    static: Values = field(default_factory=dict)
    cluster: Values = field(default_factory=dict)
    node: Values = field(default_factory=dict)

    def strongest_first(self) -> Iterator[tuple[ConfigSource, Values]]:
        """The layers above Kafka's defaults."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.node
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static


def base_name(name: str) -> str:
    """The key that a listener's or mechanism's own key overrides; the name itself for all others."""
    match = _LISTENER_KEY.fullmatch(name)
    if match is None:
        return name
    inner: str = match[1]
    return next((key for key in _MECHANISM_KEYS if inner.endswith(key)), inner)


def effective_topic_value(name: str, layers: NodeLayers, topic: Values = NO_VALUES) -> tuple[str | None, ConfigSource]:
    """The value of a topic's key, in the topic's unit, and its source (DescribeConfigs, KIP-226)."""
    if name in topic:
        return topic[name], ConfigSource.TOPIC_CONFIG
    for source, values in layers.strongest_first():
        for synonym in synonyms("topic")[name]:
            if synonym.name in values:
                return in_unit(values[synonym.name], synonym.factor), source
    return keys("topic")[name].default, ConfigSource.DEFAULT_CONFIG


def node_values(layers: NodeLayers) -> dict[str, str]:
    """The configs of a node by layer; a key removes those of weaker layers that set the same in another unit."""
    values = dict(layers.static)
    for override in (layers.cluster, layers.node):
        for name, value in override.items():
            for other in units().get(name, (name,)):
                values.pop(other, None)
            values[name] = value
    return values


def topic_defaults(layers: NodeLayers) -> dict[str, str | None]:
    """The text of every topic key on this node when the topic sets none."""
    values = node_values(layers)
    return {name: _topic_default(values, name) for name in keys("topic")}


def _topic_default(values: Values, name: str) -> str | None:
    for synonym in synonyms("topic")[name]:
        if synonym.name in values:
            return _limitless(name, in_unit(values[synonym.name], synonym.factor))
    for synonym in synonyms("topic")[name]:
        default = keys("node")[synonym.name].default
        if default is not None:
            return in_unit(default, synonym.factor)
    return keys("topic")[name].default


def _limitless(name: str, text: str) -> str:
    # Any negative log.retention.* means without limit, which the topic's key spells -1.
    return "-1" if name == "retention.ms" and text.lstrip().startswith("-") else text


def group_default(values: Values, name: str) -> str | None:
    """The value of a group without a config of its own: the node's `group.<key>`, else Kafka's default."""
    for synonym in synonyms("group")[name]:
        return values.get(synonym.name, keys("node")[synonym.name].default)
    return keys("group")[name].default
