"""The records of streams groups: Apache Kafka's own bytes, round trips, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.streams_groups import TYPES, RandomValues

from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.records import RecordError, decode
from klamm.coordinator.groups.streams.member import MemberState, StreamsMember
from klamm.coordinator.groups.streams.records import (
    MEMBER_TYPES,
    CurrentAssignment,
    MemberMetadata,
    StreamsMetadata,
    StreamsRecord,
    StreamsValue,
    TargetMetadata,
)
from klamm.coordinator.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks, TaskSets
from klamm.protocol.messages.streams_messages import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    KeyValue,
    Subtopology,
    Topology,
)

TASKS = {"0": frozenset({2, 0, 1}), "1": frozenset({5})}
ASSIGNED = AssignedTasks({"1": {5: 4}, "0": {2: 3, 0: 2}}, {"1": frozenset({1})}, {})
SUBTOPOLOGY = Subtopology(
    "0",
    ("a", "b"),
    (),
    (InternalTopic("log", 0, 3, (KeyValue("cleanup.policy", "compact"),)),),
    ("sink",),
    (InternalTopic("source", 4),),
    (CopartitionGroup((0, 1), (), (0,)),),
)
BY_KAFKA: list[tuple[StreamsValue, str]] = [
    (StreamsMetadata(3), "00000003000000000000000000"),
    (
        StreamsMetadata(4, -5, 0, (("num.standby.replicas", "1"),)),
        "00000004fffffffffffffffb02000400000000011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        MemberMetadata(
            "client", "/127.0.0.1", 60_000, 0, "process", (("k", "v"),), Endpoint("host", 65_535), rack_id="rack"
        ),
        "00057261636b07636c69656e740b2f3132372e302e302e310000ea60000000000870726f636573730105686f7374ffff0002026b027600"
        "00",
    ),
    (MemberMetadata(), "00000101ffffffffffffffff01ff0100"),
    (TargetMetadata(2), "0000000200"),
    (TargetMetadata(2, 1_700_000_000_000), "000000020100080000018bcfe56800"),
    (
        TaskSets(TASKS, {}, {"0": frozenset({7})}),
        "030230040000000000000001000000020002310200000005000102023002000000070000",
    ),
    (
        CurrentAssignment(4, 3, 2, ASSIGNED, AssignedTasks({"0": {1: 2}}, {}, {})),
        "00000004000000030203023003000000000000000201000903000000020000000302310200000005010005020000000402023102000000"
        "01000102023002000000010100050200000002010100",
    ),
    (
        Topology(1, (SUBTOPOLOGY,)),
        "0000000102023003026102620102046c6f67000000000003020f636c65616e75702e706f6c69637908636f6d706163740000020573696e"
        "6b0207736f75726365000000040000010002030000000101020000000000",
    ),
]
"""Values, and their encoding by Apache Kafka's generated classes."""


def record(value: StreamsValue | None, type_: RecordType | None = None) -> StreamsRecord:
    found = TYPES[type(value)] if type_ is None else type_  # type: ignore[index]
    return StreamsRecord(found, "g", value, "m" if found in MEMBER_TYPES else "")


@pytest.mark.parametrize(("value", "expected"), BY_KAFKA, ids=lambda one: type(one).__name__)
def test_the_bytes_of_apache_kafka(value: StreamsValue, expected: str) -> None:
    key, raw = record(value).encoded()
    assert raw == b"\0\0" + bytes.fromhex(expected)
    assert decode(key, raw) == record(value)


@pytest.mark.parametrize("type_", sorted(TYPES.values()))
def test_keys_and_tombstones(type_: RecordType) -> None:
    key, value = record(None, type_).encoded()
    assert key == type_.to_bytes(2, "big") + b"\0\1g" + (b"\0\1m" if type_ in MEMBER_TYPES else b"")
    assert value is None
    assert decode(key, value) == record(None, type_)


@given(st.integers(0, 2**32))
def test_round_trips(seed: int) -> None:
    for value in RandomValues(seed).all():
        assert decode(*record(value).encoded()) == record(value)


@given(st.integers(0, 2**32), st.data())
def test_a_value_that_is_cut_off_cannot_be_read(seed: int, data: st.DataObject) -> None:
    value = data.draw(st.sampled_from(RandomValues(seed).all()))
    key, raw = record(value).encoded()
    assert raw is not None
    with pytest.raises(RecordError):
        decode(key, raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(st.sampled_from(sorted(TYPES.values())), st.binary(max_size=64))
def test_hostile_values_are_refused_or_read(type_: RecordType, raw: bytes) -> None:
    try:
        found = decode(record(None, type_).encoded()[0], b"\0\0" + raw)
    except RecordError:
        return
    assert decode(*found.encoded()) == found


def test_tasks_without_epochs_have_the_epoch_of_the_member() -> None:
    """Records before KIP-1251 have no epochs; epochs of the wrong number are ignored."""
    value = CurrentAssignment(7, 6, 1, AssignedTasks({"0": {3: 7}}, {}, {}), NONE_ASSIGNED)
    key, raw = record(value).encoded()
    assert raw is not None
    with_epochs, without = bytes.fromhex("0100050200000007"), b"\0"
    assert with_epochs in raw
    assert decode(key, raw.replace(with_epochs, without)) == record(value)
    assert decode(key, raw.replace(with_epochs, bytes.fromhex("01000101"))) == record(value)


def test_a_state_of_a_newer_version() -> None:
    current = CurrentAssignment(7, 6, 9, NONE_ASSIGNED, NONE_ASSIGNED)
    decoded = decode(*record(current).encoded())
    assert isinstance(decoded, StreamsRecord)
    assert StreamsMember("m").with_current_assignment(current).state is MemberState.UNKNOWN
