"""Settings of streams groups: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.topics import GroupConfigs

STANDBY_REPLICAS = "num.standby.replicas"


class StreamsSettings:
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
            "streams.session.timeout.ms",
            config.group_streams_session_timeout_ms,
            config.group_streams_min_session_timeout_ms,
            config.group_streams_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members send heartbeats."""
        config = self._config
        return self._value(
            group_id,
            "streams.heartbeat.interval.ms",
            config.group_streams_heartbeat_interval_ms,
            config.group_streams_min_heartbeat_interval_ms,
            config.group_streams_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target stays at least (KIP-1263)."""
        config = self._config
        return self._value(
            group_id,
            "streams.assignment.interval.ms",
            config.group_streams_assignment_interval_ms,
            config.group_streams_min_assignment_interval_ms,
            config.group_streams_max_assignment_interval_ms,
        )

    def initial_rebalance_delay_ms(self, group_id: str) -> int:
        """How long the first target of a group without members waits for more members."""
        text = self._group_configs(group_id, "streams.initial.rebalance.delay.ms")
        return self._config.group_streams_initial_rebalance_delay_ms if text is None else int(text)

    def assignment_configs(self, group_id: str) -> dict[str, str]:
        """The configs that an assignment depends on, as the group's record stores them."""
        config = self._config
        count = self._value(
            group_id,
            "streams.num.standby.replicas",
            config.group_streams_num_standby_replicas,
            0,
            config.group_streams_max_standby_replicas,
        )
        return {STANDBY_REPLICAS: str(count)}
