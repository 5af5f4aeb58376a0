"""Snapshot files: ours round-trip, and Apache Kafka's have the state of its log (tests/golden/kafka-4.3.1)."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

import pytest

from klamm._engine.metadata import Image, MetadataRecordError
from klamm._engine.quorum import StorageError, bootstrap_checkpoint, load_snapshot, read_checkpoint, write_snapshot
from klamm.protocol.generated import metadata_records as records

CORPUS = Path(__file__).parents[2] / "golden/kafka-4.3.1"
LEVEL = records.FeatureLevelRecord(name="metadata.version", feature_level=30)


@pytest.fixture(scope="module", params=["clean", "killed"])
def kafka_log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(CORPUS / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    [log] = folder.rglob("__cluster_metadata-0")
    return log


def test_snapshots_of_apache_kafka_have_the_state_of_its_log(kafka_log: Path) -> None:
    [segment] = kafka_log.glob("*.log")
    batches = segment.read_bytes()
    snapshots = sorted(kafka_log.glob("*.checkpoint"))
    assert len(snapshots) >= 2
    compared = 0
    position, image = 0, Image()
    by_end = {int(path.stem.split("-")[0]): path for path in snapshots}
    while position < len(batches):
        size = 12 + int.from_bytes(batches[position + 8 : position + 12], "big")
        image = image.apply_batches(batches[position : position + size])
        position += size
        if path := by_end.get(image.last_offset + 1):
            loaded = load_snapshot(path, image.last_offset + 1, int(path.stem.split("-")[1]))
            assert loaded == image
            assert (loaded.last_offset, loaded.last_epoch) == (image.last_offset, image.last_epoch)
            assert loaded.last_timestamp_ms == image.last_timestamp_ms
            compared += 1
    assert compared == len(snapshots)
    assert image == Image().apply_batches(batches)
    assert image.apply_batches(batches) == image, "records that it has already are skipped"


def test_bootstrap_of_apache_kafka_is_read(kafka_log: Path) -> None:
    values = read_checkpoint(kafka_log.parent / "bootstrap.checkpoint")
    first = records.decode(values[0])
    assert first == LEVEL
    assert {record.name for record in map(records.decode, values) if isinstance(record, records.FeatureLevelRecord)} > {
        "group.version",
        "transaction.version",
    }


def test_a_snapshot_is_complete_durable_and_read_only(tmp_path: Path) -> None:
    image = Image().apply([records.encode(LEVEL, 0)])
    path = tmp_path / "00000000000000000010-0000000002.checkpoint"
    voters = (5, bytes([0, 0, 0, 1, 0]))
    size = write_snapshot(path, image, epoch=2, last_contained_log_timestamp_ms=5, now_ms=6, control_records=[voters])
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size == size
    assert not path.stat().st_mode & stat.S_IWUSR
    loaded = load_snapshot(path, 10, 2)
    assert loaded == image
    assert (loaded.last_offset, loaded.last_epoch, loaded.last_timestamp_ms) == (9, 2, 5)


def test_bootstrap_records_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    values = [records.encode(LEVEL, 0)]
    path.write_bytes(bootstrap_checkpoint(values, 6))
    assert read_checkpoint(path) == values


def test_invalid_snapshots_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        load_snapshot(tmp_path / "absent", 1, 1)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(StorageError, match=r"empty is damaged .* does not end with a snapshot footer"):
        load_snapshot(empty, 1, 1)
    with pytest.raises(MetadataRecordError, match=r"no metadata\.version"):
        write_snapshot(tmp_path / "s", Image(), epoch=1, last_contained_log_timestamp_ms=1, now_ms=1)
