"""The output of `klamm cluster status`: a row for each node, and a line about all partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm.admin.cluster import Broker, ClusterState
from klamm.config.node_config import NodeConfig

SERVING: Final = "serving"
COLUMNS: Final = ("#NODE", "ROLES", "ADDRESS", "#PROCESS", "STATE", "#LEADS", "#REPLICAS", "#IN SYNC")


class NodeView(NamedTuple):
    """A node as its files and its process show it."""

    config: NodeConfig
    pid: int | None
    end: str | None = None
    """How its process ended."""


class Row(NamedTuple):
    """One node; what is unknown is None."""

    id: int
    roles: str
    address: str
    pid: int | None
    state: str
    led: int | None
    replicas: int | None
    in_sync: int | None


def rows(nodes: Mapping[int, NodeView], cluster: ClusterState | None) -> list[Row]:
    """The nodes of the folder and the other brokers of the cluster, by id."""
    brokers = {} if cluster is None else {one.id: one for one in cluster.brokers}
    found = [_row(node_id, view, brokers.get(node_id), cluster) for node_id, view in nodes.items()]
    found += [_foreign(broker, cluster) for node_id, broker in brokers.items() if node_id not in nodes]
    return sorted(found)


def summary(cluster: ClusterState | None) -> str:
    """A line about the partitions."""
    if cluster is None:
        return "no broker answers"
    counts = f"topics: {cluster.topics}, partitions: {cluster.partitions}"
    trouble = f"under-replicated: {cluster.under_replicated}, offline: {cluster.offline}"
    return f"cluster {cluster.cluster_id}, {counts}, {trouble}"


def _row(node_id: int, view: NodeView, broker: Broker | None, cluster: ClusterState | None) -> Row:
    config = view.config
    [listener, *_] = config.client_listeners or config.controller_listeners
    roles = [role for role in ("broker", "controller") if role in config.roles]
    address = f"{listener.host}:{listener.port}"
    state = _state(view, broker, _is_voter(node_id, cluster))
    return Row(node_id, _roles(roles, node_id, cluster), address, view.pid, state, *_counts(broker))


def _foreign(broker: Broker, cluster: ClusterState | None) -> Row:
    roles = ["broker", "controller"] if _is_voter(broker.id, cluster) else ["broker"]
    state = "fenced" if broker.is_fenced else SERVING
    text = _roles(roles, broker.id, cluster)
    return Row(broker.id, text, f"{broker.host}:{broker.port}", None, state, *_counts(broker))


def _is_voter(node_id: int, cluster: ClusterState | None) -> bool:
    return cluster is not None and any(voter.node_id == node_id for voter in cluster.quorum.voters)


def _roles(roles: Sequence[str], node_id: int, cluster: ClusterState | None) -> str:
    is_active = cluster is not None and cluster.quorum.leader_id == node_id
    return ", ".join(roles) + (" (active)" if is_active else "")


def _state(view: NodeView, broker: Broker | None, is_voter: bool) -> str:
    if view.pid is None:
        return view.end or "stopped"
    if view.config.is_broker:
        return "starting" if broker is None else "fenced" if broker.is_fenced else SERVING
    return SERVING if is_voter else "starting"


def _counts(broker: Broker | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if broker is None else (broker.led, broker.replicas, broker.in_sync)
