"""Whatever is killed at any time, an archive contains what its manifest lists."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm.pipelines.archive import store
from klamm.pipelines.archive.manifest import Commit, DataFile, Range
from klamm.pipelines.archive.store import COMMITS, hidden, locate, read_manifest, writing
from klamm.pipelines.errors import PipelineError


def written(root: Path, number: int) -> Range:
    """A file as written by a task."""
    path = f"topic=t/date=2026-01-31/00000-{number}.parquet"
    hidden(root, path).parent.mkdir(parents=True, exist_ok=True)
    hidden(root, path).write_bytes(b"records")
    return Range("t", 0, number, number + 1, 1, (DataFile(path, "2026-01-31", 1, 7, number, number, 0, 0, ""),))


def visible(root: Path) -> set[str]:
    return {file.name for file in (root / "topic=t" / "date=2026-01-31").glob("[!.]*")}


def test_a_file_is_visible_only_after_its_commit(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    with writing(root) as opened:
        first = written(root, 0)
        assert not visible(root)
        opened.commit(Commit(0, None, (), (first,)))
        assert visible(root) == {"00000-0.parquet"}
    assert read_manifest(root).end(("t", 0)) == 1


def test_uncommitted_files_of_a_killed_run_are_removed_by_the_next(tmp_path: Path) -> None:
    with writing(tmp_path) as opened:
        opened.commit(Commit(0, None, (), (written(tmp_path, 0),)))
        written(tmp_path, 1)
        (tmp_path / COMMITS / "00000000000000000002.json.new").write_bytes(b"{")
    with writing(tmp_path) as opened:
        assert opened.manifest.end(("t", 0)) == 1
    assert [file.name for file in tmp_path.rglob("*") if file.suffix in (".parquet", ".new")] == ["00000-0.parquet"]


def test_a_commit_of_a_killed_run_is_published_by_the_next(tmp_path: Path) -> None:
    with writing(tmp_path) as opened:
        one = written(tmp_path, 0)
        opened.commit(Commit(0, None, (), (one,)))
    path = one.files[0].path
    (tmp_path / path).rename(hidden(tmp_path, path))
    assert locate(tmp_path, path) == hidden(tmp_path, path)
    with writing(tmp_path):
        assert visible(tmp_path) == {"00000-0.parquet"}
    assert locate(tmp_path, path) == tmp_path / path
    (tmp_path / path).unlink()
    with pytest.raises(PipelineError, match=r"00000-0.parquet' is missing"):
        locate(tmp_path, path)


def test_every_name_is_durable_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut loses names whose folder was not synced, and everything below them."""
    synced: list[Path] = []
    monkeypatch.setattr(store, "sync_folder", synced.append)
    root = tmp_path / "backup" / "kafka"
    with writing(root) as opened:
        assert {tmp_path, root.parent, root, root / "_klamm"} <= set(synced)
        opened.commit(Commit(0, None))
        assert synced[-1] == root / COMMITS


def test_a_manifest_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with writing(tmp_path) as opened:
        monkeypatch.setattr(store, "sync_file", full)
        with pytest.raises(PipelineError, match=r"0001\.json': No space left on device; make room"):
            opened.commit(Commit(0, None))
    assert read_manifest(tmp_path).commits == 0


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with writing(tmp_path), pytest.raises(PipelineError, match="another run is at it"), writing(tmp_path):
        pass
    with writing(tmp_path):
        pass


def test_a_folder_that_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=rf"'{tmp_path}' is no archive"):
        read_manifest(tmp_path)
    (tmp_path / "letters.txt").touch()
    with pytest.raises(PipelineError, match="is no archive and not empty"), writing(tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["letters.txt"]
    with pytest.raises(PipelineError, match="is no folder"), writing(tmp_path / "letters.txt"):
        pass


def test_a_commit_that_is_missing_is_named(tmp_path: Path) -> None:
    with writing(tmp_path) as opened:
        for number in range(3):
            opened.commit(Commit(0, None, (), (written(tmp_path, number),)))
    (tmp_path / COMMITS / "00000000000000000002.json").unlink()
    with pytest.raises(PipelineError, match=r"commit 00000000000000000002\.json is missing"):
        read_manifest(tmp_path)
