"""quorum-state on disk (`FileQuorumStateStore` in Kafka)."""

from __future__ import annotations

import logging
from pathlib import Path

from klamm.raft.driver.files import Files, OsFiles
from klamm.raft.election.election_state import ElectionState, QuorumStateError, decode
from klamm.raft.ports import ElectionStore

logger = logging.getLogger("klamm.raft")


class QuorumStateFile:
    """The file quorum-state in the metadata log's directory."""

    def __init__(self, directory: Path, *, is_volatile: bool = False, files: Files | None = None) -> None:
        """Volatile: written data must survive the process, but not a power cut."""
        self.path = directory / "quorum-state"
        self._is_volatile = is_volatile
        self._files = files or OsFiles()

    def read(self) -> bytes | None:
        """The file's bytes, which are durable when this returns; None if there is no file.

        If a process was killed between its rename and its sync of the directory, the name may not be durable yet.
        """
        data = self._files.read(self.path)
        if data is not None and not self._is_volatile:
            self._files.sync_directory(self.path.parent)
        return data

    def write(self, data: bytes) -> None:
        """Write a temporary file, fsync, rename, fsync the directory: a power cut leaves the old or the new file."""
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


def read_election(store: ElectionStore, log_end_offset: int, *, has_peers: bool) -> ElectionState | None:
    """The stored election state. Raises OSError, and QuorumStateError that names the file.

    Every replica stores an epoch before its first record. `has_peers`: a voter that forgot its votes could vote twice
    in one epoch, so that two leaders are elected. A sole voter continues from the epoch of its log.
    """
    data = store.read()
    try:
        if data is not None:
            return decode(data)
        problem = f"{store} is missing, although the log ends at offset {log_end_offset}"
    except QuorumStateError as error:
        problem = f"{store} cannot be understood: {error}"
        if not has_peers:
            raise QuorumStateError(f"{problem}. Remove it: no other voter depends on its content") from None
    if data is None and (log_end_offset == 0 or not has_peers):
        if log_end_offset > 0:
            logger.warning("%s. The epoch of the log is taken instead", problem)
        return None
    raise QuorumStateError(
        f"{problem}. Restore it from a copy; or begin with an empty directory, and let it join the others"
    )
