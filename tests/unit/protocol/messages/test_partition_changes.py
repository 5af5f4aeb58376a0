"""AlterPartition on the wire: both versions, both directions, and the bytes of Kafka's schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partition_changes import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    ProposedTopic,
)
from klamm.protocol.wire.codec import read, read_response, write, write_request

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
ISR = st.lists(INT32, max_size=4).map(tuple)
STATES = st.integers(0, 1)
PROPOSED = st.builds(
    ProposedPartition,
    partition_index=INT32,
    leader_epoch=INT32,
    partition_epoch=INT32,
    new_isr_with_epochs=st.lists(st.builds(BrokerState, INT32, INT64), max_size=4).map(tuple),
    new_isr=ISR,
    leader_recovery_state=STATES,
)
ALTERED = st.builds(AlteredPartition, INT32, st.sampled_from(ErrorCode), INT32, INT32, ISR, STATES, INT32)
REQUESTS = st.builds(
    AlterPartitionRequest,
    INT32,
    INT64,
    st.lists(st.builds(ProposedTopic, IDS, st.lists(PROPOSED, max_size=3).map(tuple)), max_size=3).map(tuple),
)
RESPONSES = st.builds(
    AlterPartitionResponse,
    st.sampled_from(ErrorCode),
    st.lists(st.builds(AlteredTopic, IDS, st.lists(ALTERED, max_size=3).map(tuple)), max_size=3).map(tuple),
    INT32,
)


@given(REQUESTS, st.sampled_from([2, 3]))
def test_a_request_round_trips_within_its_version(request: AlterPartitionRequest, version: int) -> None:
    def carried(partition: ProposedPartition) -> ProposedPartition:
        if version == 2:
            return replace(partition, new_isr_with_epochs=())
        return replace(partition, new_isr=())

    topics = tuple(replace(topic, partitions=tuple(map(carried, topic.partitions))) for topic in request.topics)
    arrived = read(AlterPartitionRequest, version, write_request(request, version))
    assert arrived == replace(request, topics=topics)


@given(RESPONSES, st.sampled_from([2, 3]))
def test_a_response_round_trips(response: AlterPartitionResponse, version: int) -> None:
    assert read_response(AlterPartitionResponse, version, write(response, version)) == response


@pytest.mark.parametrize(
    ("version", "isr"),
    [
        (2, "03 00000001 00000002"),
        (3, "03 00000001 ffffffffffffffff 00 00000002 0000000000000009 00"),
    ],
)
def test_the_bytes_of_a_request(version: int, isr: str) -> None:
    partition = ProposedPartition(3, 4, 5, (BrokerState(1), BrokerState(2, 9)), (1, 2), leader_recovery_state=1)
    request = AlterPartitionRequest(1, 7, (ProposedTopic(b"t" * 16, (partition,)),))
    topic_id, tags = (b"t" * 16).hex(), "00 00 00"
    expected = f"00000001 0000000000000007 02 {topic_id} 02 00000003 00000004 {isr} 01 00000005 {tags}"
    assert write_request(request, version) == bytes.fromhex(expected)
