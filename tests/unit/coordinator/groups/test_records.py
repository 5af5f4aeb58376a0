"""The records of `__consumer_offsets`: Apache Kafka's own bytes, every version, and hostile ones."""

from __future__ import annotations

import json
import lzma
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.kinds import DECODERS
from klamm.coordinator.groups.record_parts import RecordTooLarge, RecordType
from klamm.coordinator.groups.records import (
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommit,
    UnknownRecord,
    decode,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from klamm.coordinator.runtime.log import RecordError

GOLDEN = Path(__file__).parents[3] / "golden" / "group-records.json.xz"


def golden_rows() -> list[dict[str, Any]]:
    """Every data record that Kafka wrote, with the output of its own tool."""
    partitions = json.loads(lzma.decompress(GOLDEN.read_bytes()))
    return [row for rows in partitions.values() for row in rows if not row["is_control"]]


def key_and_value(row: dict[str, Any]) -> tuple[bytes, bytes | None]:
    return bytes.fromhex(row["key"]), None if row["value"] is None else bytes.fromhex(row["value"])


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["kafka_reads"][0][:60])
def test_kafkas_own_bytes(row: dict[str, Any]) -> None:
    """We read what Kafka reads; encoding it again gives Kafka's bytes."""
    key, value = key_and_value(row)
    said = json.loads(row["kafka_reads"][0])
    by_kafka = {} if value is None else json.loads(row["kafka_reads"][1])["data"]
    match decode(key, value):
        case OffsetCommit(group_id, topic, partition, commit):
            assert {"group": group_id, "topic": topic, "partition": partition} == said["data"]
            assert offset_key(group_id, topic, partition) == key
            assert (commit is None) == (value is None)
            if commit is not None:
                assert (commit.offset, commit.leader_epoch) == (by_kafka["offset"], by_kafka["leaderEpoch"])
                assert (commit.metadata, commit.commit_timestamp_ms) == (
                    by_kafka["metadata"],
                    by_kafka["commitTimestamp"],
                )
                assert offset_value(commit) == value
        case GroupRecord(group_id, kept):
            assert {"group": group_id} == said["data"]
            assert group_key(group_id) == key
            assert (kept is None) == (value is None)
            if kept is not None:
                assert (kept.generation, kept.protocol, kept.leader) == tuple(
                    by_kafka[name] for name in ("generation", "protocol", "leader")
                )
                assert [m.member_id for m in kept.members] == [m["memberId"] for m in by_kafka["members"]]
                assert group_value(kept) == value
        case UnknownRecord() as unknown:
            raise AssertionError(unknown)
        case modern:
            assert modern.group_id == said["data"]["groupId"]
            assert modern.encoded() == (key, value)


def test_the_golden_records_cover_every_kind() -> None:
    types = {RecordType(int(row["key"][:4], 16)) for row in golden_rows()}
    assert types >= {1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15}
    assert any(row["producer_id"] != -1 for row in golden_rows())


texts = st.text(max_size=40)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
commits = st.builds(
    OffsetAndMetadata,
    offset=int64s,
    leader_epoch=int32s,
    metadata=st.text(max_size=300),
    commit_timestamp_ms=int64s,
    expire_timestamp_ms=st.just(-1),
    topic_id=st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    record_offset=st.just(-1),
)
members = st.builds(
    MemberMetadata,
    member_id=texts,
    group_instance_id=texts | st.none(),
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=int32s,
    session_timeout_ms=int32s,
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)
groups = st.builds(
    GroupMetadata,
    protocol_type=texts,
    generation=int32s,
    protocol=texts | st.none(),
    leader=texts | st.none(),
    current_state_timestamp_ms=int64s,
    members=st.lists(members, max_size=4).map(tuple),
)


@given(texts, texts, int32s, commits)
def test_commits_round_trip(group_id: str, topic: str, partition: int, commit: OffsetAndMetadata) -> None:
    key = offset_key(group_id, topic, partition)
    assert decode(key, offset_value(commit)) == OffsetCommit(group_id, topic, partition, commit)
    assert decode(key, None) == OffsetCommit(group_id, topic, partition, None)


@given(commits, int64s.filter(lambda value: value != -1))
def test_a_commit_with_an_expiry_is_version_1(commit: OffsetAndMetadata, expire_ms: int) -> None:
    """It contains neither leader epoch nor topic id."""
    raw = offset_value(commit._replace(expire_timestamp_ms=expire_ms))
    assert raw[:2] == b"\x00\x01"
    record = decode(offset_key("g", "t", 0), raw)
    assert isinstance(record, OffsetCommit)
    assert record.value == commit._replace(expire_timestamp_ms=expire_ms, leader_epoch=-1, topic_id=bytes(16))


@given(texts, groups)
def test_groups_round_trip(group_id: str, group: GroupMetadata) -> None:
    assert decode(group_key(group_id), group_value(group)) == GroupRecord(group_id, group)
    assert decode(group_key(group_id), None) == GroupRecord(group_id, None)


def text(raw: str) -> bytes:
    return struct.pack(">h", len(raw)) + raw.encode()


def compact(raw: bytes) -> bytes:
    return bytes([len(raw) + 1]) + raw


OLD_OFFSET_VALUES = {
    0: (struct.pack(">hq", 0, 7) + text("m") + struct.pack(">q", 100), (7, -1, "m", 100, -1)),
    1: (struct.pack(">hq", 1, 7) + text("m") + struct.pack(">qq", 100, 200), (7, -1, "m", 100, 200)),
    2: (struct.pack(">hq", 2, 7) + text("m") + struct.pack(">q", 100), (7, -1, "m", 100, -1)),
    3: (struct.pack(">hqi", 3, 7, 9) + text("m") + struct.pack(">q", 100), (7, 9, "m", 100, -1)),
    4: (struct.pack(">hqi", 4, 7, 9) + compact(b"m") + struct.pack(">q", 100) + b"\x00", (7, 9, "m", 100, -1)),
}


@pytest.mark.parametrize("version", OLD_OFFSET_VALUES)
def test_every_version_of_an_offset(version: int) -> None:
    raw, expected = OLD_OFFSET_VALUES[version]
    record = decode(offset_key("g", "t", 3), raw)
    assert isinstance(record, OffsetCommit)
    assert record.value == OffsetAndMetadata(*expected)


def test_the_legacy_offset() -> None:
    key = struct.pack(">h", 0) + text("g") + text("t") + struct.pack(">i", 3)
    assert decode(key, OLD_OFFSET_VALUES[0][0]) == OffsetCommit("g", "t", 3, OffsetAndMetadata(7, -1, "m", 100))
    with pytest.raises(RecordError, match="value version 1"):
        decode(key, OLD_OFFSET_VALUES[1][0])


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group(version: int) -> None:
    flexible = version == 4
    string = (lambda raw: compact(raw.encode())) if flexible else text
    blob = compact if flexible else (lambda raw: struct.pack(">i", len(raw)) + raw)
    tags = b"\x00" if flexible else b""
    member = string("member")
    member += string("instance") if version >= 3 else b""
    member += string("client") + string("/host")
    member += struct.pack(">i", 60) if version >= 1 else b""
    member += struct.pack(">i", 10) + blob(b"sub") + blob(b"ass") + tags
    raw = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 5) + string("range") + string("member")
    raw += struct.pack(">q", 99) if version >= 2 else b""
    raw += (b"\x02" if flexible else struct.pack(">i", 1)) + member + tags
    record = decode(group_key("g"), raw)
    assert isinstance(record, GroupRecord)
    assert record.value == GroupMetadata(
        "consumer",
        5,
        "range",
        "member",
        99 if version >= 2 else -1,
        (
            MemberMetadata(
                "member",
                "instance" if version >= 3 else None,
                "client",
                "/host",
                60 if version >= 1 else -1,
                10,
                b"sub",
                b"ass",
            ),
        ),
    )


def test_an_unknown_tagged_field_is_skipped() -> None:
    raw = OLD_OFFSET_VALUES[4][0][:-1] + b"\x01\x09\x03abc"
    record = decode(offset_key("g", "t", 3), raw)
    assert isinstance(record, OffsetCommit)
    assert record.value == OffsetAndMetadata(7, 9, "m", 100)


@pytest.mark.parametrize("raw_type", [9, 18, 24, 32767, -1])
def test_an_unknown_type_is_an_error(raw_type: int) -> None:
    assert decode(struct.pack(">h", raw_type) + b"anything", b"") == UnknownRecord(raw_type)


@pytest.mark.parametrize(("key", "version"), [(offset_key("g", "t", 0), 5), (group_key("g"), 5), (group_key("g"), -1)])
def test_an_unknown_value_version_names_itself(key: bytes, version: int) -> None:
    with pytest.raises(RecordError, match=f"value version {version}"):
        decode(key, struct.pack(">h", version))


def test_a_value_of_a_modern_group_of_an_unknown_version_cannot_be_read() -> None:
    with pytest.raises(RecordError, match="value version 1"):
        decode(struct.pack(">h", 11) + text("g"), b"\x00\x01")


HOSTILE = [
    (b"", None),
    (b"\x00", None),
    (b"\x00\x01", None),
    (b"\x00\x01\x7f\xff", None),
    (b"\x00\x01\xff\xffab", None),
    (group_key("g"), b""),
    (group_key("g"), b"\x00\x03\x00\x01"),
    (group_key("g"), struct.pack(">h", 3) + text("") + struct.pack(">ihhqi", 1, -1, -1, 0, 2**31 - 1)),
    (group_key("g"), struct.pack(">h", 3) + text("") + struct.pack(">ihhqi", 1, -1, -1, 0, -5)),
    (offset_key("g", "t", 0), struct.pack(">hqi", 4, 7, 9) + b"\xff\xff\xff\xff\xff\xff\x01"),
    (offset_key("g", "t", 0), struct.pack(">hqi", 4, 7, 9) + b"\x00"),
    (offset_key("g", "t", 0), OLD_OFFSET_VALUES[4][0][:-1] + b"\x01\x00\x03abc"),
]


@pytest.mark.parametrize(("key", "value"), HOSTILE)
def test_hostile_bytes_are_a_typed_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        decode(key, value)


@given(st.integers(-1, 30), st.binary(max_size=60), st.none() | st.binary(max_size=80))
def test_any_bytes_decode_or_are_a_typed_error(type_: int, key: bytes, value: bytes | None) -> None:
    try:
        record = decode(struct.pack(">h", type_) + key, value)
    except RecordError:
        return
    match record:
        case OffsetCommit():
            assert type_ in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
            assert (record.value is None) == (value is None)
        case GroupRecord():
            assert type_ == RecordType.GROUP_METADATA
            assert (record.value is None) == (value is None)
        case UnknownRecord():
            assert record.type == type_
        case _:
            assert RecordType(type_) in DECODERS


@given(st.data(), groups)
def test_a_cut_value_is_a_typed_error(data: st.DataObject, group: GroupMetadata) -> None:
    raw = group_value(group)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(RecordError):
        decode(group_key("g"), raw[:cut])


def test_bytes_that_are_not_utf8_are_replaced_as_java_does() -> None:
    record = decode(struct.pack(">hh", 2, 2) + b"\xff\xfe", None)
    assert record == GroupRecord("��", None)


def test_values_that_no_record_can_hold_are_rejected() -> None:
    with pytest.raises(RecordTooLarge):
        offset_key("g" * 40_000, "t", 0)
