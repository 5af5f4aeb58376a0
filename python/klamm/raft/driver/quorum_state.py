"""quorum-state on disk (facts 3.4)."""

from __future__ import annotations

import os
from pathlib import Path

from klamm.raft.election_state import ElectionState, QuorumStateError, decode
from klamm.raft.ports import ElectionStore


class QuorumStateFile:
    """quorum-state in the metadata log's directory (facts 3.4)."""

    def __init__(self, directory: Path, *, is_volatile: bool = False) -> None:
        """Volatile: what is written outlives the process, but need not outlive a power cut."""
        self.path = directory / "quorum-state"
        self._is_volatile = is_volatile

    def read(self) -> bytes | None:
        """The file's bytes, None when there is no file."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, data: bytes) -> None:
        """Write beside, fsync, rename over, fsync the directory: a power cut leaves the old file or the new one."""
        beside = self.path.with_name(self.path.name + ".tmp")
        try:
            with open(beside, "wb") as file:
                file.write(data)
                file.flush()
                if not self._is_volatile:
                    os.fsync(file.fileno())
            os.replace(beside, self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        if self._is_volatile:
            return
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

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
