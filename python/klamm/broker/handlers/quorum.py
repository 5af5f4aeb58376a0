"""DescribeQuorum (55)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartitionData,
    QuorumTopic,
    QuorumTopicData,
    ReplicaState,
)
from klamm.protocol.topic_names import CLUSTER_METADATA_TOPIC
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import read, write


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
        if [(topic.topic_name, _indexes(topic)) for topic in request.topics] != [(CLUSTER_METADATA_TOPIC, [0])]:
            return write(DescribeQuorumResponse(topics=tuple(map(_unknown, request.topics))), version)
        state = self._state()
        partition = _NOT_LEADER if state is None else _partition(state)
        nodes = tuple(
            QuorumNode(voter, tuple(QuorumListener(*endpoint) for endpoint in endpoints))
            for voter, endpoints in (state.nodes if state is not None else ())
        )
        topics = (QuorumTopicData(CLUSTER_METADATA_TOPIC, (partition,)),)
        return write(DescribeQuorumResponse(topics=topics, nodes=nodes), version)


_NOT_LEADER: Final = QuorumPartitionData(
    0, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum; ask the one that does."
)


def _indexes(topic: QuorumTopic) -> list[int]:
    return [item.partition_index for item in topic.partitions]


def _unknown(topic: QuorumTopic) -> QuorumTopicData:
    text = f"Only {CLUSTER_METADATA_TOPIC}-0 has a quorum; it must be the only partition of the request."
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return QuorumTopicData(topic.topic_name, tuple(QuorumPartitionData(index, code, text) for index in _indexes(topic)))


def _partition(state: QuorumState) -> QuorumPartitionData:
    return QuorumPartitionData(
        0,
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        high_watermark=state.high_watermark,
        current_voters=tuple(state.voters),
        observers=tuple(state.observers),
    )
