"""Files on a simulated disk with a page cache, which a power failure loses: `klamm.raft.driver.files.Files`.

As on ext4, a name may be on disk before the bytes of its file, and a rename without a sync of the directory may or may
not be durable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from klamm.testing.simulator.crashing import CrashedError


class _File:
    """One inode: its bytes in the page cache and on the disk."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached = self.durable = b""


class DiskFiles:
    """Invariant: after `sync_directory`, the names on disk are those in the page cache."""

    def __init__(self) -> None:
        self._names: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        self.operations_left: int | None = None  # until the process ends during a write; None: never

    def durable(self, path: Path) -> bytes | None:
        """The content that certainly survives a power failure; None for no file."""
        file = self._durable_names.get(path)
        return None if file is None else file.durable

    def lose_power(self, is_lucky: Callable[[], bool]) -> None:
        """Lose the page cache; each name and file without a sync is on disk only if `is_lucky`."""
        names = dict(self._durable_names)
        if self._names != names and is_lucky():
            names = dict(self._names)
        for file in {*names.values(), *self._names.values()}:
            if file.cached != file.durable and is_lucky():
                file.durable = file.cached
            file.cached = file.durable
        self._names, self._durable_names = names, dict(names)

    # Files

    def read(self, path: Path) -> bytes | None:
        """See `Files.read`."""
        file = self._names.get(path)
        return None if file is None else file.cached

    def write(self, path: Path, data: bytes, *, sync: bool) -> None:
        """See `Files.write`."""
        self._maybe_end()
        file = self._names.setdefault(path, _File())
        file.cached = b""  # as when a file is opened for writing
        self._maybe_end()
        file.cached = data
        if sync:
            self._maybe_end()
            file.durable = data

    def replace(self, source: Path, target: Path) -> None:
        """See `Files.replace`."""
        self._maybe_end()
        self._names[target] = self._names.pop(source)

    def sync_directory(self, path: Path) -> None:
        """See `Files.sync_directory`."""
        self._maybe_end()
        self._durable_names = dict(self._names)

    def remove(self, path: Path) -> None:
        """See `Files.remove`."""
        self._names.pop(path, None)

    def _maybe_end(self) -> None:
        if self.operations_left is None:
            return
        if self.operations_left == 0:
            raise CrashedError
        self.operations_left -= 1
