"""Settings of consumer groups: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.topics import GroupConfigs


class ConsumerSettings:
    """Reads a group's settings at each use. Values outside the broker's bounds are moved into them."""

    def __init__(self, config: GroupConfig, group_configs: GroupConfigs) -> None:
        self._config, self._group_configs = config, group_configs

    def _value(self, group_id: str, key: str, default: int, low: int, high: int) -> int:
        text = self._group_configs(group_id, key)
        return default if text is None else min(max(int(text), low), high)

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        config = self._config
        return self._value(
            group_id,
            "consumer.session.timeout.ms",
            config.group_consumer_session_timeout_ms,
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members send heartbeats."""
        config = self._config
        return self._value(
            group_id,
            "consumer.heartbeat.interval.ms",
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target stays at least (KIP-1263)."""
        config = self._config
        return self._value(
            group_id,
            "consumer.assignment.interval.ms",
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        )
