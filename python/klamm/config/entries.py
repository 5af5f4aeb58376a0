"""The entries of DescribeConfigs: value, source and synonyms of each key of a resource (KIP-226)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from klamm._engine.config import ConfigKey
from klamm.config.keys import is_dynamic, keys, printed, synonyms, units
from klamm.config.values import NodeLayers, Values, base_name, group_default, node_values, topic_defaults
from klamm.protocol.messages.configs import ConfigSource, DescribeConfigsResourceResult, DescribeConfigsSynonym
from klamm.protocol.value import Value

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

Entries = tuple[DescribeConfigsResourceResult, ...]
Synonyms = list[DescribeConfigsSynonym]


class ConfigQuery(Value):
    """The keys that a DescribeConfigs requests; no names means all."""

    names: frozenset[str] = frozenset()
    synonyms: bool = False
    documentation: bool = False

    def wants(self, name: str) -> bool:
        """Whether this key is asked for."""
        return not self.names or name in self.names


def describe_topic(layers: NodeLayers, topic: Values, wanted: ConfigQuery) -> Entries:
    """Every key of a topic."""
    values = _shown("topic", topic_defaults(layers), topic)

    def synonyms_of(name: str) -> Synonyms:
        nodes = synonyms("topic").get(name, ())
        weaker = node_synonyms(layers, nodes[0].name) if nodes else []
        return _own("topic", name, topic, ConfigSource.TOPIC_CONFIG) + weaker

    return _describe("topic", values, synonyms_of, wanted)


def describe_group(layers: NodeLayers, group: Values, wanted: ConfigQuery) -> Entries:
    """Every key of a group."""
    node = node_values(layers)
    values = _shown("group", {name: group_default(node, name) for name in keys("group")}, group)

    def synonyms_of(name: str) -> Synonyms:
        return _own("group", name, group, ConfigSource.GROUP_CONFIG) + _weaker_group_synonyms(layers, name)

    return _describe("group", values, synonyms_of, wanted)


def _weaker_group_synonyms(layers: NodeLayers, name: str) -> Synonyms:
    nodes = synonyms("group").get(name, ())
    if nodes:
        return node_synonyms(layers, nodes[0].name)
    default = keys("group")[name].default if name in keys("group") else None
    return [] if default is None else [DescribeConfigsSynonym(name, default, ConfigSource.DEFAULT_CONFIG)]


def describe_client_metrics(subscription: Values, wanted: ConfigQuery) -> Entries:
    """Every key of a client metrics subscription."""
    defaults = {name: key.default for name, key in keys("client-metrics").items()}
    values = _shown("client-metrics", defaults, subscription)

    def synonyms_of(name: str) -> Synonyms:
        return _own("client-metrics", name, subscription, ConfigSource.CLIENT_METRICS_CONFIG)

    return _describe("client-metrics", values, synonyms_of, wanted)


def describe_loggers(levels: Values, wanted: ConfigQuery) -> Entries:
    """The level of each logger; these have neither types nor synonyms."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return tuple(
        DescribeConfigsResourceResult(name, level, False, source, is_sensitive=False, documentation="")
        for name, level in levels.items()
        if wanted.wants(name)
    )


def describe_node(layers: NodeLayers, wanted: ConfigQuery) -> Entries:
    """Every key of this node, and what its layers set that is no key."""
    defaults = {name: key.default for name, key in keys("node").items() if not key.is_dynamic_only}
    values = _shown("node", defaults, node_values(layers))
    return _describe("node", values, lambda name: node_synonyms(layers, name), wanted)


def describe_cluster_default(layers: NodeLayers, wanted: ConfigQuery) -> Entries:
    """The dynamic configs of all nodes."""

    def synonyms_of(name: str) -> Synonyms:
        wide = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return [synonym for synonym in node_synonyms(layers, name) if synonym.source is wide]

    return _describe("node", dict(layers.cluster), synonyms_of, wanted)


def node_synonyms(layers: NodeLayers, name: str) -> Synonyms:
    """Every place that could give the node's key `name` its value, strongest first."""
    base = base_name(name)
    names = units().get(name, (name,) if base == name else (name, base))
    is_hidden = _is_hidden(keys("node").get(base))
    table = keys("node")
    # What only the Admin API can set has no default of the file's kind.
    defaults = {each: table[each].default for each in names if each in table and not table[each].is_dynamic_only}
    sources: list[tuple[ConfigSource, Mapping[str, str | None]]] = [*layers.strongest_first()]
    sources.append((ConfigSource.DEFAULT_CONFIG, defaults))
    found = [
        DescribeConfigsSynonym(each, None if is_hidden else values[each], source)
        for source, values in sources
        for each in names
        if values.get(each) is not None
    ]
    # Kafka omits synonyms before the key's own name, even if that is only the same in another unit.
    start = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[start:]


def _is_hidden(key: ConfigKey | None) -> bool:
    # An unknown key may hold a secret.
    return key is None or key.is_sensitive


def _shown(scope: ConfigScope, defaults: Mapping[str, str | None], given: Values) -> dict[str, str | None]:
    """Every key with its given value or its default; internal keys only if given."""
    table = keys(scope)
    return {name: value for name, value in defaults.items() if not table[name].is_internal} | dict(given)


def _own(scope: ConfigScope, name: str, values: Values, source: ConfigSource) -> Synonyms:
    if name not in values:
        return []
    value = None if _is_hidden(keys(scope).get(name)) else printed(scope, name, values[name])
    return [DescribeConfigsSynonym(name, value, source)]


def _describe(
    scope: ConfigScope, values: Mapping[str, str | None], synonyms_of: Callable[[str], Synonyms], wanted: ConfigQuery
) -> Entries:
    return tuple(
        _entry(scope, name, text, synonyms_of(name), wanted) for name, text in values.items() if wanted.wants(name)
    )


def _entry(
    scope: ConfigScope, name: str, text: str | None, found: Synonyms, wanted: ConfigQuery
) -> DescribeConfigsResourceResult:
    base = base_name(name) if scope == "node" else name
    key = keys(scope).get(base)
    is_hidden = _is_hidden(key)
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_hidden else printed(scope, base, text),
        read_only=scope == "node" and not is_dynamic(name),
        config_source=found[0].source if found else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=is_hidden,
        synonyms=tuple(found) if wanted.synonyms else (),
        config_type=0 if key is None else key.type_id,
        documentation=key.documentation if wanted.documentation and key is not None else None,
    )
