from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import records
from klamm.records import NewRecord

if TYPE_CHECKING:
    from klamm._engine.records import Row

GOLDEN = Path(__file__).parents[2] / "golden" / "records"

part = st.none() | st.binary(max_size=60)
times = st.integers(0, 1 << 45)
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), part), max_size=3)
new_records = st.lists(st.builds(NewRecord, part, part, times, headers), min_size=1, max_size=8)


@given(new_records, st.sampled_from(records.CODECS))
def test_records_round_trip(given_records: list[NewRecord], codec: str) -> None:
    found = records.decode(records.encode(given_records, compression=codec))
    assert [one.offset for one in found] == list(range(len(given_records)))
    assert [NewRecord(one.value, one.key, one.timestamp_ms, list(one.headers)) for one in found] == given_records


@given(new_records, st.sampled_from(records.CODECS))
def test_three_forms_of_a_record_give_the_same_batch(given_records: list[NewRecord], codec: str) -> None:
    batch = records.encode(given_records, compression=codec)
    rows: list[Row] = [
        (one.timestamp_ms, one.key, one.value, one.headers) if one.headers else (one.timestamp_ms, one.key, one.value)
        for one in given_records
    ]
    assert records.encode(iter(rows), compression=codec) == batch
    assert records.encode(records.decode(batch), compression=codec) == batch


def test_a_truncated_batch_is_omitted() -> None:
    first, second = (records.encode([NewRecord(value)]) for value in (b"first", b"second"))
    assert [one.value for one in records.decode(first + second[:-1])] == [b"first"]
    assert len(records.batches(first + second[:-1])) == 1
    assert len(records.decode_columns(first + second[:-1])) == 1
    assert records.decode(b"") == []


def test_records_before_the_first_offset_are_omitted() -> None:
    data = records.encode([(0, None, b"%d" % i) for i in range(10)], base_offset=40)
    assert [one.offset for one in records.decode(data, first_offset=47)] == [47, 48, 49]
    assert len(records.decode_columns(data, first_offset=47)) == 3
    assert records.decode(data, first_offset=50) == []


def test_the_next_offset_is_after_the_last_complete_batch() -> None:
    batch = records.encode([NewRecord(b"one"), NewRecord(b"two")])
    assert records.next_offset(batch + batch[:-1]) == 2
    assert records.next_offset(batch[:-1]) is None


def test_damage_is_refused() -> None:
    batch = bytearray(records.encode([NewRecord(b"value")]))
    batch[-2] ^= 1
    with pytest.raises(records.RecordsDamagedError) as caught:
        records.decode(bytes(batch))
    assert caught.value.error_code == 2
    with pytest.raises(records.RecordsDamagedError):
        records.decode_columns(bytes(batch))
    with pytest.raises(records.RecordsDamagedError):
        records.batches(bytes(batch))[0].check()
    assert records.decode(bytes(batch), check_crc=False)[0].value == b"valud"


@pytest.mark.parametrize("codec", records.CODECS[1:])
def test_a_bomb_is_refused(codec: str) -> None:
    bomb = records.encode([NewRecord(bytes(1 << 20))], compression=codec)
    assert len(bomb) < 1 << 17
    with pytest.raises(records.RecordsDamagedError):
        records.decode(bomb, decompressed_bytes_max=1 << 10)
    with pytest.raises(records.RecordsDamagedError):
        records.decode_columns(bomb, decompressed_bytes_max=1 << 10)


def test_a_record_outlives_its_batch() -> None:
    (record,) = records.decode(records.encode([NewRecord(b"value", b"key", 5)], compression="gzip"))
    assert (record.key, record.value, record.timestamp_ms, record.headers) == (b"key", b"value", 5, ())
    assert repr(record) == "Record(offset=0, key=3 bytes, value=5 bytes)"


def test_unknown_codecs_and_levels() -> None:
    with pytest.raises(ValueError, match="use none, gzip, snappy, lz4 or zstd"):
        records.encode([NewRecord(b"")], compression="brotli")
    with pytest.raises(ValueError, match="gzip has no level 10"):
        records.encode([NewRecord(b"")], compression="gzip", level=10)
    with pytest.raises(ValueError, match="snappy has no level 1: it has none"):
        records.encode([NewRecord(b"")], compression="snappy", level=1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "text", b""), "the key of a record is bytes or None, not str"),
        ((1, b"", 5), "the value of a record is bytes or None, not int"),
        ((1, b""), "a row has 3 or 4 elements, not 2"),
        ((None, b"", b""), "int"),
        ((1, b"", b"", [("h", "text")]), "str"),
        ((1, b"", b"", [(b"h", b"")]), "bytes"),
    ],
)
def test_a_row_of_another_kind_is_a_type_error(row: Row, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        records.encode([row])


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        records.encode([])


def test_the_header_contains_the_given_fields() -> None:
    data = records.encode(
        [(100, b"k", b"v"), (90, b"k", b"v")],
        compression="lz4",
        base_offset=1 << 40,
        leader_epoch=7,
        producer_id=4000,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
        log_append_time_ms=200,
    )
    (batch,) = records.batches(data)
    batch.check()
    assert bytes(batch) == data
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (1 << 40, (1 << 40) + 1, 7)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 3, 17)
    assert (batch.compression, batch.record_count, batch.size_bytes) == ("lz4", 2, len(data))
    assert (batch.is_transactional, batch.is_control, batch.is_log_append_time) == (True, False, True)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.delete_horizon_ms) == (100, 200, None)
    assert [one.timestamp_ms for one in batch.records(decompressed_bytes_max=1000)] == [200, 200]
    assert len(batch.columns(decompressed_bytes_max=1000)) == 2


def test_control_records_are_only_visible_in_their_batch() -> None:
    marker = records.end_transaction_marker(4000, 3, commit=True, coordinator_epoch=12, timestamp_ms=1_700_000_000_000)
    assert records.decode(marker) == []
    assert len(records.decode_columns(marker)) == 0
    (batch,) = records.batches(marker)
    (record,) = batch.records(decompressed_bytes_max=0)
    assert batch.is_control
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\x0c")
    # Both fields are outside of the checksum, so the marker is Kafka's except for its position in the log.
    kafka = (GOLDEN / "commit.bin").read_bytes()
    assert marker[8:12] + marker[16:] == kafka[8:12] + kafka[16:]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("**/*.bin")), ids=lambda path: path.stem)
def test_batches_of_kafka_and_its_clients_are_read(path: Path) -> None:
    data = path.read_bytes()
    found = [record for batch in records.batches(data) for record in batch.records(decompressed_bytes_max=1 << 20)]
    assert len(found) == sum(batch.record_count for batch in records.batches(data))
    if not any(batch.is_control for batch in records.batches(data)):
        assert [record.offset for record in records.decode(data)] == [record.offset for record in found]
