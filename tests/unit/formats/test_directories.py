from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm._engine.quorum import StorageError
from klamm.config import sources
from klamm.config.node_config import NodeConfig
from klamm.formats import meta_properties
from klamm.formats.directories import DirectoryLocks, OpenedDirectories, lock_holder, new_directory_id, open_directories
from klamm.formats.meta_properties import MetaProperties, is_reserved
from klamm.formats.storage import FormatRequest, format_storage
from klamm.protocol.uuids import parse_uuid, uuid_text

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


def configured(*folders: Path, node_id: int = 1, metadata: Path | None = None) -> NodeConfig:
    return sources.load(
        overrides=[
            *([f"metadata.log.dir={metadata}"] if metadata else []),
            f"log.dirs={','.join(map(str, folders))}",
            f"node.id={node_id}",
            f"controller.quorum.voters={node_id}@localhost:0",
        ]
    )


@pytest.fixture
def formatted(tmp_path: Path) -> NodeConfig:
    config = configured(tmp_path / "a", tmp_path / "b")
    format_storage(config, FormatRequest(CLUSTER))
    return config


@pytest.fixture
def opened(formatted: NodeConfig) -> Iterator[OpenedDirectories]:
    found = open_directories(formatted)
    yield found
    found.locks.release()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(config: NodeConfig, folder: Path) -> str:
    """The error message; the directory is unchanged."""
    before = content(folder)
    with pytest.raises(StorageError) as caught:
        open_directories(config)
    assert content(folder) == before
    return str(caught.value)


def test_a_formatted_node_opens(opened: OpenedDirectories, tmp_path: Path) -> None:
    assert opened.cluster_id == CLUSTER
    assert set(opened.directory_ids) == {tmp_path / "a", tmp_path / "b"}
    assert len(set(opened.directory_ids.values())) == 2
    assert opened.failed == {}


def test_a_separate_metadata_log_directory_is_locked(formatted: NodeConfig, tmp_path: Path) -> None:
    own = configured(*formatted.log_dirs, metadata=tmp_path / "metadata")
    format_storage(own, FormatRequest(CLUSTER, ignore_formatted=True))
    opened = open_directories(own)
    with pytest.raises(StorageError, match="another node in this process"):
        open_directories(own)
    opened.locks.release()
    open_directories(own).locks.release()


def test_log_directories_are_locked_by_the_engine(opened: OpenedDirectories, tmp_path: Path) -> None:
    assert opened.locks
    assert not list(tmp_path.rglob(".lock"))


def test_another_process_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from klamm.formats.directories import DirectoryLocks\n"
        "DirectoryLocks([Path(sys.argv[1])])"
    )
    with DirectoryLocks([tmp_path]):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode != 0
    assert f"{tmp_path} is used by another process" in done.stderr


def test_the_holder_of_a_lock_is_found_without_locking(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "missing") is None
    assert lock_holder(tmp_path) is None
    program = (
        "import sys, pathlib; from klamm.formats.directories import DirectoryLocks;"
        "locks = DirectoryLocks([pathlib.Path(sys.argv[1])]); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        assert lock_holder(tmp_path) == other.pid
        other.communicate()
    assert lock_holder(tmp_path) is None
    with DirectoryLocks([tmp_path]):
        assert lock_holder(tmp_path) == os.getpid()


def test_if_one_directory_is_locked_no_other_stays_locked(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with DirectoryLocks([second]), pytest.raises(StorageError):
        DirectoryLocks([first, second])
    DirectoryLocks([first, second]).release()


def test_unformatted(tmp_path: Path) -> None:
    assert "not formatted" in refusal(configured(tmp_path / "none"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_directory_unformatted(formatted: NodeConfig, tmp_path: Path) -> None:
    message = refusal(configured(*formatted.log_dirs, tmp_path / "new"), tmp_path)
    assert f"not formatted, unlike the others: {tmp_path / 'new'}" in message
    assert "--ignore-formatted" in message


def test_another_node(formatted: NodeConfig, tmp_path: Path) -> None:
    message = refusal(configured(*formatted.log_dirs, node_id=7), tmp_path)
    assert "node.id is 1, but the configuration says node.id=7" in message


def test_directories_of_two_clusters(formatted: NodeConfig, tmp_path: Path) -> None:
    other = tmp_path / "c"
    format_storage(configured(other), FormatRequest("BBBBBBBBBBBBBBBBBBBBBA"))
    message = refusal(configured(*formatted.log_dirs, other), tmp_path)
    assert "cluster.id is BBBBBBBBBBBBBBBBBBBBBA" in message
    assert str(tmp_path / "a") in message


def test_a_copied_directory(formatted: NodeConfig, tmp_path: Path) -> None:
    file = tmp_path / "b" / "meta.properties"
    file.write_text((tmp_path / "a" / "meta.properties").read_text())
    assert "one is a copy of the other" in refusal(formatted, tmp_path)


def test_a_metadata_log_in_the_wrong_directory(formatted: NodeConfig, tmp_path: Path) -> None:
    (tmp_path / "b" / "__cluster_metadata-0").mkdir()
    assert "metadata.log.dir" in refusal(formatted, tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=2\ncluster.id=x\nnode.id=1\n", "version 2 is newer than this klamm"),
        ("version=0\nbroker.id=1\n", "ZooKeeper"),
        ("broker.id=1\n", "ZooKeeper"),
        ("version=one\n", "version=one is not a number"),
        ("garbage\n", "it has no version"),
        ("", "it has no version"),
        ("version=1\nnode.id=1\n", "missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "node.id=one"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n", "'short' is not an id"),
        ("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "reserved"),
        ("version=\\u1", "line 1"),
    ],
)
def test_invalid_meta_properties(formatted: NodeConfig, tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "b" / "meta.properties").write_text(text)
    message = refusal(formatted, tmp_path)
    assert complaint in message
    assert str(tmp_path / "b") in message


def test_a_directory_that_is_a_file(formatted: NodeConfig, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot read the metadata log directory" in refusal(configured(file), tmp_path)
    found = open_directories(configured(*formatted.log_dirs, file))
    assert list(found.failed) == [file]
    found.locks.release()


def test_a_directory_from_before_3_7_gets_its_id(formatted: NodeConfig, tmp_path: Path) -> None:
    file = tmp_path / "a" / "meta.properties"
    file.write_text(MetaProperties(CLUSTER, 1, None).render())
    found = open_directories(formatted)
    found.locks.release()
    assert meta_properties.parse(file.read_text()).directory_id == found.directory_ids[tmp_path / "a"]


def test_ids_are_written_as_kafka_writes_them() -> None:
    assert uuid_text(bytes(16)) == CLUSTER
    one = bytes.fromhex("0123456789abcdeffedcba9876543210")
    assert uuid_text(one) == "ASNFZ4mrze_-3LqYdlQyEA"
    assert parse_uuid("ASNFZ4mrze_-3LqYdlQyEA") == one
    for text in ("", "AAAA", "!" * 22, "A" * 23):
        with pytest.raises(ValueError, match="is not an id"):
            parse_uuid(text)


def test_new_ids_do_not_look_like_options() -> None:
    ids = {new_directory_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(uuid_text(one).startswith("-") or is_reserved(one) for one in ids)
