"""A state of the cluster in a form that JSON has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from klamm._engine.metadata import BrokerInfo, ControllerInfo, Image, PartitionInfo
from klamm.metadata.log.history import State
from klamm.metadata.log.moments import iso_text
from klamm.metadata.rendering.fields import config_value, voter_fields
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.uuids import uuid_text

CONFIG_TYPES: Final = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP)


def state_fields(state: State, topics: Collection[str] | None = None) -> dict[str, Any]:
    """Everything that a state holds; of topics only those named, if any are."""
    image = state.image.stable
    return {
        "offset": state.offset,
        "epoch": state.epoch,
        "time": iso_text(state.timestamp_ms),
        "in_transaction": state.image.in_transaction,
        "quorum": quorum_fields(state),
        "features": image.features(),
        "controllers": [controller_fields(one) for one in controllers_of(image)],
        "brokers": [broker_fields(one) for one in brokers_of(image)],
        "topics": [topic_fields(image, name) for name in image.topic_names() if topics is None or name in topics],
        "configs": configs_of(image),
        "quotas": [{"entity": entity, "quotas": values} for entity, values in image.quotas()],
        "acl_count": len(image.acls()),
        "scram_users": [{"mechanism": mechanism, "user": user} for mechanism, user in sorted(image.scram_users())],
        "delegation_tokens": sorted(image.delegation_token_ids()),
        "next_producer_id": image.next_producer_id,
    }


def quorum_fields(state: State) -> dict[str, Any]:
    """Leader, epoch, kraft.version and voters."""
    quorum = state.quorum
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "kraft_version": quorum.kraft_version,
        "voters": list(map(voter_fields, quorum.voters)),
    }


def brokers_of(image: Image) -> list[BrokerInfo]:
    """Every registered broker, by id."""
    return [found for one in sorted(image.broker_ids()) if (found := image.broker(one)) is not None]


def controllers_of(image: Image) -> list[ControllerInfo]:
    """Every registered controller, by id."""
    return [found for one in sorted(image.controller_ids()) if (found := image.controller(one)) is not None]


def broker_state(broker: BrokerInfo) -> str:
    """`active`, `fenced` or `shutting down`."""
    return "shutting down" if broker.in_controlled_shutdown else "fenced" if broker.fenced else "active"


def endpoints_of(node: BrokerInfo | ControllerInfo) -> list[str]:
    """`LISTENER://host:port` of each."""
    return [f"{one.name}://{one.host}:{one.port}" for one in node.endpoints]


def broker_fields(broker: BrokerInfo) -> dict[str, Any]:
    """A broker."""
    return {
        "id": broker.id,
        "state": broker_state(broker),
        "epoch": broker.epoch,
        "incarnation_id": uuid_text(broker.incarnation_id),
        "rack": broker.rack,
        "endpoints": endpoints_of(broker),
        "log_dirs": list(map(uuid_text, broker.log_dirs)),
    }


def controller_fields(controller: ControllerInfo) -> dict[str, Any]:
    """A controller."""
    return {
        "id": controller.id,
        "incarnation_id": uuid_text(controller.incarnation_id),
        "endpoints": endpoints_of(controller),
    }


def topic_fields(image: Image, name: str) -> dict[str, Any]:
    """A topic with its partitions."""
    topic_id = image.topic_id(name) or b""
    return {
        "name": name,
        "id": uuid_text(topic_id),
        "partitions": [partition_fields(one) for one in image.partitions(topic_id)],
    }


def partition_fields(partition: PartitionInfo) -> dict[str, Any]:
    """A partition; -1 is no leader."""
    return {
        "partition": partition.index,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "adding_replicas": partition.adding_replicas,
        "removing_replicas": partition.removing_replicas,
        "leader_recovery_state": partition.leader_recovery_state,
        "directories": list(map(uuid_text, partition.directories)),
    }


def configs_of(image: Image) -> list[dict[str, Any]]:
    """Every resource that has something set, with what may be shown of it."""
    return [
        {
            "type": kind.name.lower(),
            "name": name,
            "values": {key: config_value(kind, key, value) for key, value in sorted(image.configs(kind, name).items())},
        }
        for kind in CONFIG_TYPES
        for name in sorted(image.config_resources(kind))
    ]
