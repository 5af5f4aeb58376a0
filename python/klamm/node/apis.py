"""Which APIs a node answers in Python, and by which handler. The engine answers the fast path itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.broker.handlers.cluster import ClusterHandlers
from klamm.broker.handlers.config_changes import ConfigChangeHandlers
from klamm.broker.handlers.configs import ConfigHandlers
from klamm.broker.handlers.forwarded import forwarded
from klamm.broker.handlers.groups import GroupHandlers
from klamm.broker.handlers.log_dirs import LogDirHandlers
from klamm.broker.handlers.offsets import OffsetHandlers
from klamm.broker.handlers.quorum import QuorumHandlers
from klamm.broker.handlers.records import RecordHandlers
from klamm.broker.request import Handler
from klamm.controller.driver import ControllerDriver
from klamm.protocol import cluster, configs, features, topics

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),  # version 6 is unstable in Kafka 4.3
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    47: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    62: (0, 4),
    63: (0, 2),
    67: (0, 0),
    74: (0, 1),
}
"""Lowest and highest version of each API that Python answers (facts 12)."""


def controller_apis(
    controller: ControllerDriver, cluster_handlers: ClusterHandlers, configs_: ConfigHandlers, quorum: QuorumHandlers
) -> dict[int, Handler]:
    """What the active controller answers, whoever asks: a client by a broker, or a node by the controller listener."""
    ask = controller

    return {
        19: forwarded(topics.CreateTopicsRequest, lambda request, _: ask.create_topics(request)),
        20: forwarded(topics.DeleteTopicsRequest, ask.delete_topics),
        32: configs_.describe_configs,
        33: forwarded(configs.AlterConfigsRequest, lambda request, _: ask.alter_configs(request)),
        37: forwarded(topics.CreatePartitionsRequest, lambda request, _: ask.create_partitions(request)),
        43: forwarded(topics.ElectLeadersRequest, lambda request, _: ask.elect_leaders(request)),
        44: forwarded(
            configs.IncrementalAlterConfigsRequest, lambda request, _: ask.incremental_alter_configs(request)
        ),
        55: quorum.describe_quorum,
        57: forwarded(features.UpdateFeaturesRequest, lambda request, _: ask.update_features(request)),
        60: cluster_handlers.describe_cluster,
    }


def node_apis(controller: ControllerDriver) -> dict[int, Handler]:
    """What nodes alone ask the controller."""
    return {
        62: forwarded(cluster.BrokerRegistrationRequest, controller.register_broker),
        63: forwarded(cluster.BrokerHeartbeatRequest, lambda request, _: controller.broker_heartbeat(request)),
        67: forwarded(cluster.AllocateProducerIdsRequest, lambda request, _: controller.allocate_producer_ids(request)),
    }


def broker_apis(
    groups: GroupHandlers,
    offsets: OffsetHandlers,
    records: RecordHandlers,
    log_dirs: LogDirHandlers,
    configs_: ConfigHandlers,
    *,
    config_changes: ConfigChangeHandlers,
) -> dict[int, Handler]:
    """What a broker answers itself, or looks at before the controller does."""
    return {
        8: offsets.offset_commit,
        9: offsets.offset_fetch,
        10: groups.find_coordinator,
        11: groups.join_group,
        12: groups.heartbeat,
        13: groups.leave_group,
        14: groups.sync_group,
        15: groups.describe_groups,
        16: groups.list_groups,
        21: records.delete_records,
        22: records.init_producer_id,
        33: config_changes.alter_configs,
        35: log_dirs.describe_log_dirs,
        42: groups.delete_groups,
        44: config_changes.incremental_alter_configs,
        47: offsets.offset_delete,
        61: records.describe_producers,
        74: configs_.list_config_resources,
    }


def ranges(handlers: Mapping[int, Handler]) -> list[tuple[int, int, int]]:
    """Key, lowest and highest version of each, for the engine."""
    return [(key, *VERSIONS[key]) for key in sorted(handlers)]
