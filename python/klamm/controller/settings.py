"""The controller's settings from its node's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm._engine.config import parse_config
from klamm.config.keys import keys, number
from klamm.controller.leadership.elections import ElectionSettings
from klamm.controller.nodes.registration import BrokerSettings
from klamm.controller.periodic import PeriodicSettings
from klamm.protocol.features import SUPPORTED_FEATURES, VersionRange
from klamm.protocol.value import Value, field

if TYPE_CHECKING:
    from klamm.controller.configs.configs import AlterConfigPolicy, ConfigSettings
    from klamm.controller.topics.topics import CreateTopicPolicy, TopicSettings


class ControllerSettings(Value):
    """The node's identity, and the values of the node's file as text."""

    node_id: int
    cluster_id: str
    static: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=lambda: SUPPORTED_FEATURES)
    create_topic_policy: CreateTopicPolicy | None = None
    alter_config_policy: AlterConfigPolicy | None = None
    own_incarnation_id: bytes | None = None

    def _number(self, name: str) -> int:
        return number("node", name, self.static.get(name, keys("node")[name].default or ""))

    def _flag(self, name: str) -> bool:
        return parse_config("node", name, self.static.get(name, keys("node")[name].default or "")) is True

    @property
    def min_insync_replicas(self) -> int:
        """The file's value, which becomes the cluster's when eligible leader replicas are turned on."""
        return self._number("min.insync.replicas")

    def brokers(self) -> BrokerSettings:
        """For registrations and sessions."""
        return BrokerSettings(self.cluster_id, self._number("broker.session.timeout.ms"), self.own_incarnation_id)

    @property
    def delete_topic_enable(self) -> bool:
        """Whether topics can be deleted at all."""
        return self._flag("delete.topic.enable")

    def topics(self) -> TopicSettings:
        """For creation."""
        from klamm.controller.topics.topics import TopicSettings

        return TopicSettings(
            num_partitions=self._number("num.partitions"),
            default_replication_factor=self._number("default.replication.factor"),
            policy=self.create_topic_policy,
        )

    @property
    def mutation_quota_saved_s(self) -> int:
        """For how many seconds a client may save its quota of changes."""
        return self._number("controller.quota.window.num") * self._number("controller.quota.window.size.seconds")

    def configs(self) -> ConfigSettings:
        """For changes of configs."""
        from klamm.controller.configs.configs import ConfigSettings

        return ConfigSettings(self.node_id, self.static, self.alter_config_policy)

    def elections(self) -> ElectionSettings:
        """For elections."""
        unclean = self._flag("unclean.leader.election.enable")
        return ElectionSettings(self.node_id, self.min_insync_replicas, unclean)

    def periodic(self) -> PeriodicSettings:
        """The settings of periodic tasks."""
        return PeriodicSettings(
            max_idle_interval_ms=self._number("metadata.max.idle.interval.ms"),
            session_timeout_ms=self._number("broker.session.timeout.ms"),
            leader_imbalance_check_interval_ms=1_000 * self._number("leader.imbalance.check.interval.seconds"),
            auto_leader_rebalance=self._flag("auto.leader.rebalance.enable"),
            unclean_leader_election_interval_ms=self._number("unclean.leader.election.interval.ms"),
        )
