"""The records of `__share_group_state`; the expected bytes are Apache Kafka 4.3's."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.runtime.log import RecordError
from klamm.coordinator.share.records import (
    SNAPSHOT,
    UPDATE,
    Snapshot,
    Update,
    decode_key,
    decode_snapshot,
    decode_update,
    share_key,
    snapshot_value,
    update_value,
)
from klamm.protocol.messages.share_state import SharePartitionKey, StateBatch

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC_ID, 3)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BATCH = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 20),
    st.integers(-128, 127),
    st.integers(-(1 << 15), (1 << 15) - 1),
)
BATCHES = st.lists(BATCH, max_size=200).map(tuple)


def test_a_key() -> None:
    raw = bytes.fromhex("0000 0001 67") + TOPIC_ID + bytes.fromhex("00000003")
    assert share_key(SNAPSHOT, KEY) == raw
    assert share_key(UPDATE, KEY) == b"\0\1" + raw[2:]
    assert decode_key(raw) == (SNAPSHOT, KEY)
    assert decode_key(b"\0\7" + raw[2:]) is None


def test_a_snapshot() -> None:
    snapshot = Snapshot(1, 2, 5, 7, 2, (StateBatch(7, 11, 2, 1),), 100, 200)
    raw = bytes.fromhex(
        "0000 00000001 00000002 00000005 0000000000000007 0000000000000064 00000000000000c8"
        "02 0000000000000007 000000000000000b 02 0001 00"
        "01 00 04 00000002"
    )
    assert snapshot_value(snapshot) == raw
    assert decode_snapshot(raw) == snapshot


def test_an_update_without_a_count() -> None:
    update = Update(0, 5, -1, -1, ())
    raw = bytes.fromhex("0000 00000000 00000005 ffffffffffffffff 01 00")
    assert update_value(update) == raw
    assert decode_update(raw) == update


@given(st.builds(Snapshot, INT32, INT32, INT32, INT64, INT32, BATCHES, INT64, INT64))
def test_a_snapshot_round_trips(snapshot: Snapshot) -> None:
    assert decode_snapshot(snapshot_value(snapshot)) == snapshot


@given(st.builds(Update, INT32, INT32, INT64, INT32, BATCHES))
def test_an_update_round_trips(update: Update) -> None:
    assert decode_update(update_value(update)) == update


@given(st.text(max_size=50), st.binary(min_size=16, max_size=16), INT32)
def test_a_key_round_trips(group_id: str, topic_id: bytes, partition: int) -> None:
    key = SharePartitionKey(group_id, topic_id, partition)
    assert decode_key(share_key(UPDATE, key)) == (UPDATE, key)


def test_unknown_tags_are_skipped() -> None:
    raw = update_value(Update(0, 5, 1, -1, ()))
    assert decode_update(raw[:-1] + b"\1\5\2ab") == Update(0, 5, 1, -1, ())


@pytest.mark.parametrize("version", [-1, 1])
def test_an_unknown_version_cannot_be_read(version: int) -> None:
    raw = version.to_bytes(2, "big", signed=True) + update_value(Update(0, 5, 1, -1, ()))[2:]
    with pytest.raises(RecordError, match=f"version {version}"):
        decode_update(raw)


@given(st.binary(max_size=80))
def test_damaged_bytes_are_refused_or_read(raw: bytes) -> None:
    for damaged in (raw, b"\0\0" + raw):
        with contextlib.suppress(RecordError):
            snapshot = decode_snapshot(damaged)
            assert decode_snapshot(snapshot_value(snapshot)) == snapshot
        with contextlib.suppress(RecordError):
            update = decode_update(damaged)
            assert decode_update(update_value(update)) == update


def test_a_batch_whose_last_offset_is_before_its_first() -> None:
    with pytest.raises(RecordError, match="ends before it begins"):
        decode_update(update_value(Update(0, 0, 0, 0, (StateBatch(5, 4, 0, 1),))))
