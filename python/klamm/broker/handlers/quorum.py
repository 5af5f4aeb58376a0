"""DescribeQuorum (55)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from klamm.broker.request import RequestContext
from klamm.protocol.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartitionData,
    QuorumTopicData,
    ReplicaState,
)
from klamm.protocol.codec import read, write
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_names import CLUSTER_METADATA_TOPIC
from klamm.protocol.value import Value

NODES_VERSION: Final = 2


class QuorumState(Value):
    """The quorum as its leader knows it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]
    nodes: Sequence[tuple[int, Sequence[tuple[str, str, int]]]]
    """Voters' ids, each with (listener, host, port)."""


class QuorumHandlers:
    """Serves DescribeQuorum from what raft says now."""

    def __init__(self, state: Callable[[], QuorumState | None]) -> None:
        """`state` gives None while this node does not lead."""
        self._state = state

    async def describe_quorum(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The metadata partition's voters and observers; no other partition has any."""
        request = read(DescribeQuorumRequest, version, body)
        state = self._state()
        topics = tuple(
            QuorumTopicData(
                topic.topic_name,
                tuple(_partition(state, topic.topic_name, item.partition_index) for item in topic.partitions),
            )
            for topic in request.topics
        )
        nodes = tuple(
            QuorumNode(voter, tuple(QuorumListener(*endpoint) for endpoint in endpoints))
            for voter, endpoints in (state.nodes if state is not None else ())
        )
        return write(DescribeQuorumResponse(topics=topics, nodes=nodes), version)


def _partition(state: QuorumState | None, topic: str, index: int) -> QuorumPartitionData:
    if topic != CLUSTER_METADATA_TOPIC or index != 0:
        return QuorumPartitionData(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if state is None:
        return QuorumPartitionData(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return QuorumPartitionData(
        index,
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        high_watermark=state.high_watermark,
        current_voters=tuple(state.voters),
        observers=tuple(state.observers),
    )
