"""Settings of streams groups: a group's own configs (resource type 32), else those of the broker."""

from __future__ import annotations

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.modern.settings import MemberSettings
from klamm.coordinator.groups.topics import GroupConfigs

STANDBY_REPLICAS = "num.standby.replicas"


class StreamsSettings(MemberSettings):
    """Adds what only streams groups have."""

    def __init__(self, config: GroupConfig, group_configs: GroupConfigs) -> None:
        super().__init__("streams", config, group_configs)

    def initial_rebalance_delay_ms(self, group_id: str) -> int:
        """How long the first target of a group without members waits for more members."""
        own = self._own(group_id, "initial.rebalance.delay.ms")
        return self._config.group_streams_initial_rebalance_delay_ms if own is None else own

    def assignment_configs(self, group_id: str) -> dict[str, str]:
        """The configs that an assignment depends on, as the group's record stores them."""
        own, config = self._own(group_id, STANDBY_REPLICAS), self._config
        highest = config.group_streams_max_standby_replicas
        count = config.group_streams_num_standby_replicas if own is None else min(max(own, 0), highest)
        return {STANDBY_REPLICAS: str(count)}
