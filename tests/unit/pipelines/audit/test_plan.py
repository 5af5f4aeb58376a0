"""What tasks read: all intact records, divided at batches; damage is named."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.metadata_stories import BROKER, FOLDER, ORDERS, WrittenLog, change, config, write_story

from klamm._engine.records import record_batches
from klamm.metadata import History
from klamm.metadata.errors import HistoryError
from klamm.metadata.rendering.fields import fields_of
from klamm.pipelines.audit import plan as planning
from klamm.pipelines.audit import reading
from klamm.pipelines.audit.parts import Part, UnreadableError, from_text, to_text
from klamm.pipelines.audit.plan import Plan, plan
from klamm.pipelines.audit.tables import RECORD_TYPES, table_name, table_names
from klamm.pipelines.errors import PipelineError
from klamm.protocol.generated import metadata_records as mr

CORPUS = Path(__file__).parents[3] / "golden/kafka-4.3.1"


@pytest.fixture(scope="module", params=["clean", "killed"])
def kafka_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(CORPUS / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    [log] = folder.rglob(FOLDER)
    return log.parent


def rows_of(parts: tuple[Part, ...], **wanted: object) -> list[dict[str, object]]:
    batches = [batch for part in parts for batch in reading.rows_of(part, reading.RowFilter(**wanted))]
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_record_of_apache_kafkas_log_is_returned_unchanged(kafka_dir: Path) -> None:
    found = plan(kafka_dir)
    entries = list(History(kafka_dir).records())
    rows = rows_of(found.log)
    assert [(row["offset"], row["batch"], row["epoch"]) for row in rows] == [
        (entry.offset, entry.batch, entry.epoch) for entry in entries
    ]
    for row, entry in zip(rows, entries, strict=True):
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(entry.timestamp_ms)  # type: ignore[attr-defined]
        assert row["snapshot"] is None
        if entry.control is None:
            assert row["type"] == type(entry.record()).__name__
            assert json.loads(str(row["fields"])) == json.loads(json.dumps(fields_of(entry)))
    for name, number in RECORD_TYPES.items():
        typed = rows_of(found.log, record_type=number)
        expected = [json.loads(str(row["fields"])) for row in rows if row["type"] == name]
        fields = [{key: value for key, value in row.items() if key in expected[0]} for row in typed] if expected else []
        assert fields == expected, name
    assert (found.damage, found.withheld, found.base) == ((), (), None)
    assert found.end_offset == entries[-1].offset + 1
    assert found.end_time_ms == max(entry.timestamp_ms for entry in entries)


def test_records_of_a_snapshot_have_its_last_offset(kafka_dir: Path) -> None:
    for parts in plan(kafka_dir).snapshots:
        head = parts[0].snapshot
        assert head is not None
        rows = rows_of(parts)
        alone = History(kafka_dir / FOLDER / head.name)
        assert len(rows) == len(list(alone.records()))
        assert {row["offset"] for row in rows} == {head.end_offset - 1}
        assert {row["epoch"] for row in rows} == {head.epoch}
        assert {row["snapshot"] for row in rows} == {head.name}
        assert plan(alone.path).base == head


def test_parts_are_cut_at_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_story(tmp_path, segment_bytes=600)
    whole = rows_of(plan(tmp_path).log)
    monkeypatch.setattr(planning, "PIECE_BYTES", 200)
    monkeypatch.setattr(planning, "PART_PIECES", 2)
    cut = plan(tmp_path)
    assert len({part.path for part in cut.log}) > 2
    assert len(cut.log) > 4
    assert rows_of(cut.log) == whole
    assert [row["offset"] for row in whole] == list(range(39))
    assert from_text(to_text(cut.log)) == list(cut.log)


def test_records_of_aborted_transactions_are_known(tmp_path: Path) -> None:
    write_story(tmp_path)
    assert plan(tmp_path).withheld == ((26, 28),)
    log = WrittenLog(tmp_path)
    log.epoch = 3
    begun = log.put(31_000, mr.BeginTransactionRecord(name="open"), change(ORDERS, 0, leader=2))
    log.close()
    assert plan(tmp_path).withheld == ((26, 28), (begun - 1, begun))


def damaged(folder: Path, offset: int) -> Path:
    """The file of a segment in which a byte of the batch with that offset was changed."""
    [file] = [one for one in sorted(folder.glob("*.log")) if int(one.stem) <= offset][-1:]
    data = bytearray(file.read_bytes())
    position = 0
    for batch in record_batches(bytes(data)):
        if batch.base_offset <= offset <= batch.last_offset:
            data[position + batch.size_bytes - 1] ^= 1
            file.write_bytes(data)
            return file
        position += batch.size_bytes
    raise AssertionError(f"{offset} is not there")


@pytest.mark.parametrize("segment_bytes", [600, 8 << 20], ids=["a segment before the last", "the last segment"])
def test_records_before_the_damage_are_kept_and_the_file_is_named(tmp_path: Path, segment_bytes: int) -> None:
    write_story(tmp_path, segment_bytes=segment_bytes)
    file = damaged(tmp_path / FOLDER, 14)
    found = plan(tmp_path)
    assert [row["offset"] for row in rows_of(found.log)] == list(range(14))
    [expected] = found.damage
    assert str(file) in expected
    assert found.end_offset == 14


def test_a_torn_end_is_named(tmp_path: Path) -> None:
    write_story(tmp_path)
    [file] = (tmp_path / FOLDER).glob("*.log")
    data = file.read_bytes()
    sizes = [batch.size_bytes for batch in record_batches(data)]
    file.write_bytes(data[: sum(sizes[:-1]) + 20])
    found = plan(tmp_path)
    assert [row["offset"] for row in rows_of(found.log)] == list(range(38))
    assert str(file) in found.damage[0]


def test_damage_in_apache_kafkas_directory(kafka_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    for one in (kafka_dir / FOLDER).iterdir():
        (folder / one.name).write_bytes(one.read_bytes())
    file = damaged(folder, 50)
    snapshot = sorted(folder.glob("*.checkpoint"))[0]
    snapshot.write_bytes(snapshot.read_bytes()[:-10])
    found = plan(tmp_path)
    assert len(found.damage) == 2
    assert str(snapshot) in found.damage[0]
    assert str(file) in found.damage[1]
    before = max(int(str(row["offset"])) for row in rows_of(found.log))
    assert before < 50
    entries = [entry.offset for entry in History(kafka_dir).records(0, before + 1)]
    assert [row["offset"] for row in rows_of(found.log)] == entries


def test_without_a_base_there_are_no_states(tmp_path: Path) -> None:
    write_story(tmp_path, segment_bytes=600)
    first = min((tmp_path / FOLDER).glob("*.log"))
    first.unlink()
    (tmp_path / FOLDER / "quorum-state").write_text("{}")
    with pytest.raises(HistoryError, match="no whole snapshot of what came before"):
        plan(tmp_path)


def test_a_file_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    write_story(tmp_path)
    found = plan(tmp_path)
    file = Path(found.log[0].path)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(UnreadableError, match=f"{file.name} was cut at byte 300"):
        rows_of(found.log)
    file.unlink()
    with pytest.raises(UnreadableError, match=file.name):
        rows_of(found.log)


def test_secrets_are_not_copied(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.put(1, config("ssl.keystore.password", "sesame", of="", kind=BROKER), config("of.nobody", "sesame"))
    log.put(2, config("ssl.keystore.password", None, of="", kind=BROKER), config("retention.ms", "1"))
    scram = mr.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"sesame", stored_key=b"sesame", server_key=b"sesame", iterations=4096
    )
    log.put(3, scram)
    log.close()
    found = plan(tmp_path)
    values = [row["value"] for row in rows_of(found.log, record_type=mr.ConfigRecord.TYPE)]
    assert values == ["(hidden)", "(hidden)", None, "1"]
    [user] = rows_of(found.log, record_type=mr.UserScramCredentialRecord.TYPE)
    assert {user["salt"], user["stored_key"], user["server_key"]} == {"(hidden)"}
    assert user["iterations"] == 4096
    assert "sesame" not in str(rows_of(found.log))
    assert b"sesame".hex() not in str(rows_of(found.log))


def test_every_record_type_is_a_table(tmp_path: Path) -> None:
    for number in RECORD_TYPES.values():
        schema = reading.RowFilter(record_type=number).schema()
        assert schema.names[:6] == ["snapshot", "offset", "batch", "epoch", "timestamp", "version"]
        assert len(set(schema.names)) == len(schema.names)
    log = WrittenLog(tmp_path)
    log.epoch = 7
    log.put(1, mr.FenceBrokerRecord(id=1, epoch=5))
    log.close()
    [row] = rows_of(plan(tmp_path).log, record_type=mr.FenceBrokerRecord.TYPE)
    assert (row["epoch"], row["broker_epoch"]) == (7, 5)
    assert table_name("partitionchange") == "PartitionChangeRecord"
    assert table_name("LeaderChange") == "LeaderChangeMessage"
    assert len(table_names()) == len(RECORD_TYPES) + 5
    with pytest.raises(PipelineError, match="'Zebra': use one of RegisterBrokerRecord"):
        table_name("Zebra")


def test_a_record_of_a_newer_version_is_kept_and_named(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.native.append([b"\x01\x63\x00\x00"], 1, 1)
    log.close()
    [row] = rows_of(plan(tmp_path).log)
    assert row["type"] == "record 99"
    assert "newer version" in json.loads(str(row["fields"]))["error"]
    with pytest.raises(UnreadableError, match="offset 0: there is no metadata record 99"):
        rows_of(plan(tmp_path).log, record_type=mr.ConfigRecord.TYPE)


def test_epochs_are_counted_by_the_tasks(tmp_path: Path) -> None:
    write_story(tmp_path)
    rows = rows_of(plan(tmp_path).log, is_epochs=True)
    assert [(row["epoch"], row["first_offset"], row["last_offset"], row["records"]) for row in rows] == [
        (1, 0, 16, 17),
        (3, 17, 38, 22),
    ]
    assert isinstance(reading.RowFilter(is_epochs=True).schema(), pa.Schema)


def test_a_directory_without_a_metadata_log_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(HistoryError, match=str(path)):
            plan(path)


def test_a_plan_is_small(kafka_dir: Path) -> None:
    found: Plan = plan(kafka_dir)
    assert len(found.log) == 1
    assert len(to_text(found.log)) < 1000
