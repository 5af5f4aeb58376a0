"""The directory of a replica: its owner, its lock, and the log in it.

replica.json    node id, cluster id and directory id; written once
log/            the log's segments, snapshots and quorum-state, in Apache Kafka's formats
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm._engine.quorum import MetadataLog
from klamm.raft.library.errors import ReplicaDirectoryError
from klamm.raft.log.native_log import NativeMetadataLog

IDENTITY_FILE: Final = "replica.json"
LOG_FOLDER: Final = "log"
LOCK_FILE: Final = ".lock"
SEGMENT_MS: Final = 7 * 24 * 3_600_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class DirectoryOwner(NamedTuple):
    """The owner of a directory."""

    node_id: int
    cluster: str


class DirectoryFiles:
    """An open directory. Everything here blocks."""

    def __init__(
        self, directory: Path, owner: DirectoryOwner, *, voters: tuple[int, ...], segment_bytes: int, is_volatile: bool
    ) -> None:
        """Make or open it; `voters` are the configured ones. Raises ReplicaDirectoryError, OSError, StorageError."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(directory / LOCK_FILE)
        try:
            self.directory_id = _claimed(directory, owner)
            self.log_directory = directory / LOG_FOLDER
            native = MetadataLog(
                self.log_directory,
                segment_bytes=segment_bytes,
                segment_ms=SEGMENT_MS,
                now_ms=wall_clock_ms(),
                is_volatile=is_volatile,
                voters=(owner.node_id, voters),
                advice=f"Restore {self.log_directory} from a copy; or remove {directory}: the replica then begins "
                "without records, and fetches those that the other replicas have",
            )
        except BaseException:  # whatever it is, the directory is unlocked
            os.close(self._lock)
            raise
        self.log = NativeMetadataLog(native, wall_clock_ms)

    def close(self) -> None:
        """Close the log and unlock the directory."""
        try:
            self.log.close()
        finally:
            os.close(self._lock)


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        text = f"{path.parent} is in use by another replica: stop that one, or give this one a directory of its own"
        raise ReplicaDirectoryError(text) from None
    return lock


def _claimed(directory: Path, owner: DirectoryOwner) -> bytes:
    """The directory's id; the first owner of an empty directory gives it one."""
    path = directory / IDENTITY_FILE
    if not path.exists():
        return _claim(path, owner)
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        found = DirectoryOwner(int(fields["node_id"]), str(fields["cluster"]))
        directory_id = bytes.fromhex(fields["directory_id"])
    except (ValueError, KeyError, TypeError) as error:
        text = f"{path} cannot be understood ({error}): restore it, or give the replica an empty directory"
        raise ReplicaDirectoryError(text) from None
    if found != owner:
        raise ReplicaDirectoryError(
            f"{directory} belongs to replica {found.node_id} of cluster {found.cluster!r}, not to replica "
            f"{owner.node_id} of {owner.cluster!r}: give each replica a directory of its own"
        )
    return directory_id


def _claim(path: Path, owner: DirectoryOwner) -> bytes:
    directory_id = os.urandom(16)
    fields = {"node_id": owner.node_id, "cluster": owner.cluster, "directory_id": directory_id.hex()}
    beside = path.with_suffix(".tmp")
    with open(beside, "w") as file:
        file.write(json.dumps(fields) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return directory_id
