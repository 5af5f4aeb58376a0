"""Finds the leader of the metadata quorum by a Fetch to any controller that changes nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.messages.quorum_messages import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

FETCH_VERSION_MAX: Final = 17


class LeaderAndEpoch(NamedTuple):
    """The leader and the epoch that a controller knows; None for what it does not know."""

    leader_id: int | None
    epoch: int | None


UNKNOWN: Final = LeaderAndEpoch(None, None)


def leader_and_epoch(connection: Connection) -> LeaderAndEpoch:
    """Leader and epoch as the controller knows them: a Fetch with epoch 0 is fenced, and the error names both."""
    partition = FetchPartition(0, 0, current_leader_epoch=0, last_fetched_epoch=0)
    topic = FetchTopic((partition,), METADATA_TOPIC_ID, METADATA_TOPIC)
    try:
        answer = connection.ask(FetchRequest(0, (topic,), max_bytes=1), FetchResponse, FETCH_VERSION_MAX)
    except ClientError:
        return UNKNOWN
    for found in (one for topic_data in answer.responses for one in topic_data.partitions):
        leader = found.current_leader
        if leader.leader_epoch >= 0:
            return LeaderAndEpoch(None if leader.leader_id < 0 else leader.leader_id, leader.leader_epoch)
    return UNKNOWN
