"""The effective configs that the answer to CreateTopics shows (KIP-525)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.config.keys import keys
from klamm.config.values import NodeLayers, effective_topic_value
from klamm.protocol.messages.configs import ConfigSource
from klamm.protocol.messages.topics import CreatableTopicConfigs


class DefaultEntries:
    """The effective configs of a topic without own configs, cached while the node's values do not change."""

    def __init__(self, layers: NodeLayers) -> None:
        self.layers: Final = layers
        shown = (name for name, key in keys("topic").items() if not key.is_internal)
        self._by_name = {name: _entry(name, *effective_topic_value(name, layers)) for name in shown}
        self._entries = tuple(self._by_name.values())

    def with_topic(self, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        """The effective configs of a topic with own configs, sorted by name."""
        if not configs:
            return self._entries
        given = {name: _entry(name, value, ConfigSource.TOPIC_CONFIG) for name, value in configs.items()}
        merged = {**self._by_name, **given}
        return tuple(merged[name] for name in sorted(merged))


def _entry(name: str, value: str | None, source: ConfigSource) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name, value, read_only=False, config_source=source, is_sensitive=False)
