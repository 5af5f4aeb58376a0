"""quorum-state on disk (facts 3.4)."""

from __future__ import annotations

from pathlib import Path

from klamm.raft.driver.files import Files, OsFiles
from klamm.raft.election_state import ElectionState, QuorumStateError, decode
from klamm.raft.ports import ElectionStore


class QuorumStateFile:
    """quorum-state in the metadata log's directory (facts 3.4)."""

    def __init__(self, directory: Path, *, is_volatile: bool = False, files: Files | None = None) -> None:
        """Volatile: what is written outlives the process, but need not outlive a power cut."""
        self.path = directory / "quorum-state"
        self._is_volatile = is_volatile
        self._files = files or OsFiles()

    def read(self) -> bytes | None:
        """The file's bytes, None when there is no file. They outlive a power cut that comes after.

        A process that was killed between its rename and its sync of the directory leaves a name that need not.
        """
        data = self._files.read(self.path)
        if data is not None and not self._is_volatile:
            self._files.sync_directory(self.path.parent)
        return data

    def write(self, data: bytes) -> None:
        """Write beside, fsync, rename over, fsync the directory: a power cut leaves the old file or the new one."""
        beside = self.path.with_name(self.path.name + ".tmp")
        try:
            self._files.write(beside, data, sync=not self._is_volatile)
            self._files.replace(beside, self.path)
        except OSError:
            self._files.remove(beside)
            raise
        if not self._is_volatile:
            self._files.sync_directory(self.path.parent)

    def __str__(self) -> str:
        return str(self.path)


def read_election(store: ElectionStore) -> ElectionState | None:
    """What the store holds. Raises OSError, and QuorumStateError that names the file."""
    data = store.read()
    try:
        return None if data is None else decode(data)
    except QuorumStateError as error:
        text = f"{store} cannot be understood: {error}. Restore it, or format this node anew and let it join again"
        raise QuorumStateError(text) from None
