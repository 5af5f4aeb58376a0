"""Who leads the metadata quorum, asked of any controller by a fetch that leaves no trace."""

from __future__ import annotations

from typing import Final

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


def leader_and_epoch(connection: Connection) -> tuple[int | None, int | None]:
    """As the controller knows them. Epoch 0 is fenced by all that had a leader, and the refusal names both."""
    partition = FetchPartition(0, 0, current_leader_epoch=0, last_fetched_epoch=0)
    topic = FetchTopic((partition,), METADATA_TOPIC_ID, METADATA_TOPIC)
    try:
        answer = connection.ask(FetchRequest(0, (topic,), max_bytes=1), FetchResponse, FETCH_VERSION_MAX)
    except ClientError:
        return None, None
    for found in (one for topic_data in answer.responses for one in topic_data.partitions):
        leader = found.current_leader
        if leader.leader_epoch >= 0:
            return None if leader.leader_id < 0 else leader.leader_id, leader.leader_epoch
    return None, None
