"""Settings of the groups of one kind: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from typing import NamedTuple

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.topics import GroupConfigs


class _Bounded(NamedTuple):
    """A setting of a group: the key of its own value, and the broker's default and bounds."""

    key: str
    default: int
    low: int
    high: int


class MemberSettings:
    """Reads a group's settings at each use. Values outside the broker's bounds are moved into them.

    `kind` is the first word of the group's configs: consumer, share or streams.
    """

    def __init__(self, kind: str, config: GroupConfig, group_configs: GroupConfigs) -> None:
        self._kind, self._config, self._group_configs = kind, config, group_configs
        # Every heartbeat reads these, so their names are put together once.
        self._session_timeout = self._bounded("session.timeout.ms")
        self._heartbeat_interval = self._bounded("heartbeat.interval.ms")
        self._assignment_interval = self._bounded("assignment.interval.ms")

    def _bounded(self, name: str) -> _Bounded:
        """The broker's `group.KIND.NAME`, with its bounds."""
        key = name.replace(".", "_")
        default, low, high = (
            getattr(self._config, f"group_{self._kind}_{bound}{key}") for bound in ("", "min_", "max_")
        )
        return _Bounded(f"{self._kind}.{name}", default, low, high)

    def _value(self, group_id: str, setting: _Bounded) -> int:
        text = self._group_configs(group_id, setting.key)
        return setting.default if text is None else min(max(int(text), setting.low), setting.high)

    def _own(self, group_id: str, name: str) -> int | None:
        text = self._group_configs(group_id, f"{self._kind}.{name}")
        return None if text is None else int(text)

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self._value(group_id, self._session_timeout)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members send heartbeats."""
        return self._value(group_id, self._heartbeat_interval)

    def assignment_interval_ms(self, group_id: str) -> int:
        """How long a target stays at least (KIP-1263)."""
        return self._value(group_id, self._assignment_interval)
