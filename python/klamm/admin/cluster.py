"""The state of a whole cluster over the wire: its brokers, its controllers, and how its partitions are replicated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from klamm.admin import topics as topic_admin
from klamm.admin.client import Client, check
from klamm.admin.quorum import Quorum, ask_quorum, quorum_of
from klamm.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

DESCRIBE_CLUSTER_VERSION_MAX = 2


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker. `led`, `replicas`, `in_sync`: numbers of partitions."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    led: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster as one broker describes it; `quorum` is as the active controller does."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    quorum: Quorum
    topics: int
    partitions: int
    under_replicated: int
    """Partitions of which a replica is not in sync."""
    offline: int
    """Partitions without a leader."""


def cluster_state(client: Client) -> ClusterState:
    """Ask one broker for everything. Raises ClientError."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = client.any.ask(request, DescribeClusterResponse, DESCRIBE_CLUSTER_VERSION_MAX)
    check(answer.error_code, "the cluster cannot be described", answer.error_message)
    quorum = quorum_of(ask_quorum(client.any), answer.cluster_id)
    topics = topic_admin.topics(client)
    partitions = [one for topic in topics for one in topic.partitions]
    led = Counter(one.leader for one in partitions)
    replicas = Counter(broker for one in partitions for broker in one.replicas)
    in_sync = Counter(broker for one in partitions for broker in one.isr)
    brokers = (
        Broker(
            one.broker_id,
            one.host,
            one.port,
            one.rack,
            one.is_fenced,
            led[one.broker_id],
            replicas[one.broker_id],
            in_sync[one.broker_id],
        )
        for one in sorted(answer.brokers, key=lambda one: one.broker_id)
    )
    return ClusterState(
        answer.cluster_id,
        tuple(brokers),
        quorum,
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=sum(len(one.isr) < len(one.replicas) for one in partitions),
        offline=led[-1],
    )
