"""Settings of the groups of one kind: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.topics import GroupConfigs


class MemberSettings:
    """Reads a group's settings at each use. Values outside the broker's bounds are moved into them.

    `kind` is the first word of the group's configs: consumer, share or streams.
    """

    def __init__(self, kind: str, config: GroupConfig, group_configs: GroupConfigs) -> None:
        self._kind, self._config, self._group_configs = kind, config, group_configs

    def _own(self, group_id: str, name: str) -> int | None:
        text = self._group_configs(group_id, f"{self._kind}.{name}")
        return None if text is None else int(text)

    def _bounded(self, group_id: str, name: str) -> int:
        """The group's own value within the broker's bounds, or the broker's `group.KIND.NAME`."""
        own, key = self._own(group_id, name), name.replace(".", "_")
        default, low, high = (
            getattr(self._config, f"group_{self._kind}_{bound}{key}") for bound in ("", "min_", "max_")
        )
        return int(default if own is None else min(max(own, low), high))

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self._bounded(group_id, "session.timeout.ms")

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members send heartbeats."""
        return self._bounded(group_id, "heartbeat.interval.ms")

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target stays at least (KIP-1263)."""
        return self._bounded(group_id, "assignment.interval.ms")
