"""quorum-state: both versions as Apache Kafka writes them (`FileQuorumStateStore`), and invalid files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.raft.election.election_state import ElectionState, QuorumStateError, decode, encode
from klamm.raft.voters.voter_set import ReplicaKey

IDS = st.integers(min_value=0, max_value=2**31 - 1)
DIRECTORIES = st.binary(min_size=16, max_size=16).filter(lambda directory_id: directory_id != bytes(16))
STATES = st.builds(
    ElectionState,
    epoch=IDS,
    leader_id=st.none() | IDS,
    voted=st.none() | st.builds(ReplicaKey, IDS, st.none() | DIRECTORIES),
)


@given(STATES)
def test_version_1_round_trips(state: ElectionState) -> None:
    assert decode(encode(state, 1, (1, 2, 3))) == state


@given(STATES)
def test_version_0_lacks_the_directory_id(state: ElectionState) -> None:
    voted = None if state.voted is None else ReplicaKey(state.voted.id)
    assert decode(encode(state, 0, (1,))) == ElectionState(state.epoch, state.leader_id, voted)


def test_version_0_as_kafka_writes_it() -> None:
    text = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert decode(text.encode()) == ElectionState(5, 1, None)
    assert json.loads(encode(ElectionState(5, 1, None), 0, (1, 2))) == json.loads(text)


def test_version_1_as_kafka_writes_it() -> None:
    text = '{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","data_version":1}'
    state = ElectionState(7, None, ReplicaKey(3, bytes(15) + b"\x01"))
    assert decode(text.encode()) == state
    assert json.loads(encode(state, 1, ())) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ("{}", "data_version is None"),
        ('{"data_version":2}', "data_version is 2"),
        ('{"data_version":true,"leaderId":1,"leaderEpoch":1,"votedId":1}', "data_version is True"),
        ('{"data_version":0,"leaderId":1,"leaderEpoch":-1,"votedId":1}', "leaderEpoch is -1"),
        ('{"data_version":0,"leaderId":"1","leaderEpoch":1,"votedId":1}', "leaderId is '1'"),
        ('{"data_version":0,"leaderId":1,"leaderEpoch":1,"votedId":2147483648}', "votedId is 2147483648"),
        ('{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1}', "votedDirectoryId is None"),
        ('{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"AA"}', "votedDirectoryId"),
    ],
)
def test_invalid_files_are_rejected(text: str, says: str) -> None:
    with pytest.raises(QuorumStateError, match=says):
        decode(text.encode())


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        state = decode(data)
    except QuorumStateError:
        return
    assert decode(encode(state, 1, ())) == state
