"""Settings of share groups: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.topics import GroupConfigs


class ShareSettings:
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
            "share.session.timeout.ms",
            config.group_share_session_timeout_ms,
            config.group_share_min_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members send heartbeats."""
        config = self._config
        return self._value(
            group_id,
            "share.heartbeat.interval.ms",
            config.group_share_heartbeat_interval_ms,
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target stays at least (KIP-1263)."""
        config = self._config
        return self._value(
            group_id,
            "share.assignment.interval.ms",
            config.group_share_assignment_interval_ms,
            config.group_share_min_assignment_interval_ms,
            config.group_share_max_assignment_interval_ms,
        )
