"""The few operations on files that quorum-state needs: the operating system's, or a simulator's that can lose power."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Each operation may block and raises OSError."""

    def read(self, path: Path) -> bytes | None:
        """The file's bytes; None if there is no file."""

    def write(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Create a file with these bytes, or replace its bytes. With `sync` they are durable, if the name is."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename the file; a file that had that name is replaced."""

    def sync_directory(self, path: Path) -> None:
        """Make the names in that directory durable."""

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""


class OsFiles:
    """The files of the operating system."""

    def read(self, path: Path) -> bytes | None:
        """See `Files.read`."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, data: bytes, *, sync: bool) -> None:
        """See `Files.write`."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """See `Files.replace`."""
        os.replace(source, target)

    def sync_directory(self, path: Path) -> None:
        """See `Files.sync_directory`."""
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, path: Path) -> None:
        """See `Files.remove`."""
        path.unlink(missing_ok=True)
