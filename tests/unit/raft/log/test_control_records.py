"""Control records: bytes as Apache Kafka writes them (`ControlRecordUtils`), and malicious ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.raft.log.control_records import (
    ControlRecordError,
    decode_kraft_version,
    decode_voters,
    encode_kraft_version,
    encode_leader_change,
    encode_voters,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

DIRECTORY = bytes(range(1, 17))
ENDPOINTS = st.lists(st.builds(Endpoint, st.text(max_size=5), st.text(max_size=200), st.integers(0, 65535)), max_size=3)
VOTERS = st.builds(
    Voter,
    st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16).filter(any)),
    ENDPOINTS.map(tuple),
    st.integers(0, 3),
    st.integers(0, 3),
)
VOTER_SETS = st.lists(VOTERS, max_size=5, unique_by=lambda voter: voter.key.id).map(VoterSet.of)


def test_leader_change() -> None:
    expected = "0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00"
    assert encode_leader_change(1, [2, 1], [1]) == bytes.fromhex(expected)


def test_kraft_version() -> None:
    assert encode_kraft_version(1) == bytes.fromhex("0000 0001 00")
    assert decode_kraft_version(encode_kraft_version(1)) == 1


def test_voters() -> None:
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    voters = VoterSet.of([Voter(ReplicaKey(1, DIRECTORY), (endpoint,), 0, 1)])
    expected = (
        bytes.fromhex("0000 02 00000001")
        + DIRECTORY
        + b"\x02\x0bCONTROLLER\x0alocalhost"
        + bytes.fromhex("2385 00 0000 0001 00 00 00")
    )
    assert encode_voters(voters) == expected
    assert decode_voters(expected) == voters


@given(VOTER_SETS)
def test_voters_round_trip(voters: VoterSet) -> None:
    assert decode_voters(encode_voters(voters)) == voters


@given(VOTER_SETS, st.data())
def test_a_cut_record_is_refused(voters: VoterSet, data: st.DataObject) -> None:
    encoded = encode_voters(voters)
    cut = data.draw(st.integers(0, max(len(encoded) - 2, 0)))
    with pytest.raises(ControlRecordError):
        decode_voters(encoded[:cut])


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        voters = decode_voters(b"\x00\x00" + data)
    except ControlRecordError:
        return
    assert decode_voters(encode_voters(voters)) == voters


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0001 01", "version 1, and only 0"),
        ("0000 ffffffffff7f", "varint longer than 5"),
        ("0000 ffffffff0f", "array of"),
        ("0000 00", "array of -1"),
    ],
)
def test_lying_records_are_refused(value: str, says: str) -> None:
    with pytest.raises(ControlRecordError, match=says):
        decode_voters(bytes.fromhex(value))


def test_a_voter_twice_is_refused() -> None:
    one = encode_voters(VoterSet.of_ids([1]))
    twice = b"\x00\x00\x03" + one[3:-1] * 2 + b"\x00"
    with pytest.raises(ControlRecordError, match="ascending, unique"):
        decode_voters(twice)
