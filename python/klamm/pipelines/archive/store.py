"""The folder of an archive: how a commit becomes part of it atomically, even if a run is killed.

1. Tasks write and sync files whose names begin with a dot, so that readers of tables ignore them.
2. A commit that lists them is written to a temporary file, synced and renamed: then they are archived.
3. They are renamed without the dot.

A run that is killed before 2 leaves unlisted files, which the next run removes. After 2, the next run completes the
renaming; until then a reader of the manifest finds a file under either name. One run at a time: it locks `_klamm/lock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm.pipelines.archive.manifest import Commit, DataFile, Manifest, decode, encode
from klamm.pipelines.errors import PipelineError

OWN: Final = "_klamm"
"""The folder for files that are not data."""
COMMITS: Final = f"{OWN}/commits"
SUFFIX: Final = ".json"
LOCK_TRIED_EVERY_S: Final = 0.1


def read_manifest(root: Path) -> Manifest:
    """All commits. Raises PipelineError for a folder that is not an archive, or a commit that is damaged or missing."""
    folder = root / COMMITS
    if not folder.is_dir():
        raise PipelineError(f"'{root}' is no archive: there is no folder {COMMITS} in it")
    manifest = Manifest()
    for number, file in enumerate(sorted(folder.glob(f"*{SUFFIX}")), 1):
        if file.name != _name(number):
            raise PipelineError(f"'{root}' is damaged: commit {_name(number)} is missing; take it from a copy")
        manifest.add(decode(file.read_bytes(), str(file)))
    return manifest


def locate(root: Path, path: str) -> Path:
    """The path of a file of the manifest. Raises PipelineError if it is missing."""
    for place in (root / path, hidden(root, path)):
        if place.exists():
            return place
    raise PipelineError(f"'{root / path}' is missing, and the manifest has it; take it from a copy")


def hidden(root: Path, path: str) -> Path:
    """The path of a file until it is committed."""
    shown = root / path
    return shown.with_name(f".{shown.name}")


@contextlib.contextmanager
def locked(folder: Path, what: str, *, name: str = "lock", wait_s: float = 0) -> Iterator[None]:
    """A lock in a folder, which is created; it ends with the process. PipelineError if it is taken for `wait_s`."""
    make_folder(folder)
    deadline_s = time.monotonic() + wait_s
    with (folder / name).open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    text = f"{what}: another run is at it ('{folder / name}' is locked); wait for it"
                    raise PipelineError(text) from None
                time.sleep(LOCK_TRIED_EVERY_S)
        yield


class Store:
    """An archive that is written to; see `writing`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = read_manifest(root)

    def commit(self, commit: Commit) -> None:
        """Make a commit part of the archive durably, and rename its files."""
        self.manifest.add(commit)
        file = self.root / COMMITS / _name(self.manifest.commits)
        try:
            write_durably(file, encode(commit))
        except OSError as error:
            raise PipelineError(
                f"cannot write '{file}': {error.strerror or error}; make room or mend it, and run the same again: it "
                "continues where the manifest ends"
            ) from None
        self._show(file for one in commit.ranges for file in one.files)

    def _show(self, files: Iterator[DataFile]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # already renamed
                hidden(self.root, file.path).rename(self.root / file.path)

    def tidy(self) -> None:
        """Complete a killed run: rename committed files, remove the others."""
        known = self.manifest.files()
        self._show(iter(known))
        for folder in {(self.root / file.path).parent for file in known} | set(self.root.glob("topic=*/date=*")):
            for file in folder.glob(".*.parquet"):
                file.unlink()
        for file in (self.root / COMMITS).glob(f"*{SUFFIX}.*"):
            file.unlink()


@contextlib.contextmanager
def writing(root: Path) -> Iterator[Store]:
    """An archive to write to, created if absent, and locked. PipelineError for a folder with something else."""
    if root.exists() and not root.is_dir():
        raise PipelineError(f"'{root}' is no folder")
    if root.is_dir() and not (root / OWN).exists() and any(root.iterdir()):
        raise PipelineError(f"'{root}' is no archive and not empty: name another folder, which is then made")
    with locked(root / OWN, f"archive '{root}'"):
        make_folder(root / COMMITS)
        store = Store(root)
        store.tidy()
        yield store


def write_durably(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
    made = path.with_name(f"{path.name}.new")
    with made.open("wb") as file:
        file.write(data)
        sync_file(file.fileno())
    made.rename(path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in made:
        sync_folder(one.parent)


def sync_file(descriptor: int) -> None:
    """Sync a file."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(number: int) -> str:
    return f"{number:020}{SUFFIX}"
