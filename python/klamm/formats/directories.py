"""The directories of a node, checked before anything is changed (`MetaPropertiesEnsemble`).

The engine locks the log directories when it opens them. Only a separate metadata log directory has to be locked here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from klamm._engine.quorum import StorageError
from klamm.config.listeners import check_ports
from klamm.config.node_config import NodeConfig
from klamm.formats import meta_properties
from klamm.formats.meta_properties import Ensemble, MetaProperties, is_reserved
from klamm.protocol.uuids import uuid_text
from klamm.protocol.value import Value

LOCK_FILE: Final = ".lock"
METADATA_FOLDER: Final = "__cluster_metadata-0"
RECOVERY_FOLDER: Final = ".klamm-recovery"
"""In the metadata log's directory while `klamm quorum recover` puts another log in the place of its log."""
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_BEFORE_FORMATTED: Final = {BOOTSTRAP_FILE, f"{BOOTSTRAP_FILE}.tmp", f"{meta_properties.FILE_NAME}.tmp"}

# C's `struct flock`.
_FLOCK: Final = "qqihh" if sys.platform == "darwin" else "hhqqi4x"
_FLOCK_FIELDS: Final = (
    ("start", "len", "pid", "type", "whence") if sys.platform == "darwin" else ("type", "whence", "start", "len", "pid")
)

_held: Final[set[Path]] = set()
"""The directories that this process has locked: the kernel's lock does not exclude the same process."""


def metadata_directory_failed(directory: Path | str, cause: str | None) -> str:
    """The last message of a node whose metadata log cannot be written, from whichever writer failed first."""
    return f"the metadata log's directory {directory} is out of use: {cause}"


class DirectoryLocks:
    """Locks on directories, like Apache Kafka's, so that neither system opens a directory that the other uses.

    Not for directories that the engine locks: closing any descriptor of a lock file releases every lock of this process
    on it.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        """Raises StorageError, and locks none, when one of them is locked or cannot be."""
        self._files: dict[Path, int] = {}
        try:
            for directory in directories:
                self._lock(directory)
        except BaseException:  # for any exception, which is raised
            self.release()
            raise

    def release(self) -> None:
        """Unlock. The lock files stay, as in Apache Kafka."""
        for directory, file in self._files.items():
            os.close(file)
            _held.discard(directory)
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _lock(self, directory: Path) -> None:
        directory = directory.resolve()
        if directory in _held:
            raise StorageError(f"{directory} is used by another node in this process: give each its own directory")
        path = directory / LOCK_FILE
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot lock {directory}: {error.strerror}: {path}") from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StorageError(
                    f"{directory} is used by another process: stop it, or use another directory"
                ) from None
            raise StorageError(f"cannot lock {directory}: {error.strerror}: {path}") from None
        self._files[directory] = file
        _held.add(directory)


def lock_holder(directory: Path) -> int | None:
    """The process that has locked the directory, which is this one or another; None if none has.

    It takes no lock, so that a node which starts meanwhile is not refused. Raises OSError.
    """
    if directory.resolve() in _held:
        return os.getpid()
    try:
        file = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, *(fcntl.F_WRLCK if name == "type" else 0 for name in _FLOCK_FIELDS))
        found = dict(zip(_FLOCK_FIELDS, struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked)), strict=True))
    finally:
        os.close(file)
    return None if found["type"] == fcntl.F_UNLCK else int(found["pid"])


class OpenedDirectories(Value):
    """The directories of a node that starts. `release` the locks when it has stopped."""

    cluster_id: str
    directory_ids: Mapping[Path, bytes]
    """The id of each directory that works."""
    failed: Mapping[Path, str]
    """Directories that cannot be read, with the reason; never the metadata log's."""
    locks: DirectoryLocks
    """Locks on directories that the engine does not lock."""


def open_directories(config: NodeConfig) -> OpenedDirectories:
    """Check the directories of a formatted node. Nothing is changed when one check fails: StorageError."""
    ensemble = meta_properties.load(config.all_dirs)
    _check_formatted(config, ensemble)
    meta_properties.verify(ensemble, config.node_id)
    for directory in ensemble.formatted:
        _check_place_of_metadata(config, directory)
        _check_writable(directory)
    _check_metadata_files(config.metadata_log_dir)
    if any(meta.directory_id is None for meta in ensemble.formatted.values()):
        check_ports(config.listeners)
    locks = DirectoryLocks(directory for directory in ensemble.formatted if directory not in config.partition_dirs)
    try:
        complete = _with_directory_ids(ensemble.formatted)
    except BaseException:  # for any exception, which is raised
        locks.release()
        raise
    cluster_id = complete[config.metadata_log_dir].cluster_id
    ids = {directory: _known(meta.directory_id) for directory, meta in complete.items()}
    return OpenedDirectories(cluster_id, ids, ensemble.failed, locks)


def is_in_recovery(directory: Path) -> bool:
    """Whether a recovery was interrupted here. The folder alone is what one leaves that was killed as it ended."""
    folder = directory / RECOVERY_FOLDER
    return folder.exists() and any(folder.iterdir())


def new_directory_id() -> bytes:
    """A random id that is not reserved and whose text does not begin with a dash (`DirectoryId.random`)."""
    while True:
        # What `secrets` does, without importing it: a node starts without hashlib.
        candidate = os.urandom(16)
        if not is_reserved(candidate) and not uuid_text(candidate).startswith("-"):
            return candidate


def write_atomically(path: Path, data: bytes, *, is_volatile: bool = False) -> None:
    """Write a temporary file next to the path, flush, and rename: after a crash there is the old file or the new one.

    Volatile: only after a crash of the process. Raises OSError, and removes the temporary file.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if not is_volatile:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if not is_volatile:
        flush_directory(path.parent)


def flush_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_formatted(config: NodeConfig, ensemble: Ensemble) -> None:
    metadata = config.metadata_log_dir
    if metadata in ensemble.failed:
        raise StorageError(f"cannot read the metadata log directory {metadata}: {ensemble.failed[metadata]}")
    folders = ", ".join(map(str, ensemble.empty))
    if ensemble.empty and not ensemble.formatted:
        raise StorageError(f"not formatted: {folders}; run `klamm storage format --help`")
    if ensemble.empty:
        raise StorageError(
            f"not formatted, unlike the others: {folders}; run `klamm storage format --ignore-formatted`"
        )


def _check_place_of_metadata(config: NodeConfig, directory: Path) -> None:
    found = directory / METADATA_FOLDER
    if directory != config.metadata_log_dir and found.exists():
        raise StorageError(f"{found} is a metadata log, but metadata.log.dir comes to {config.metadata_log_dir}")


def _check_writable(directory: Path) -> None:
    _check_permission(directory, os.R_OK | os.W_OK | os.X_OK)


def _check_metadata_files(directory: Path) -> None:
    """A start reads and changes these files: it must not find out half-way that it has no permission."""
    folder = directory / METADATA_FOLDER
    if is_in_recovery(directory):
        # Its log may be away, and a voter without one votes as if it had never voted.
        raise StorageError(
            f"{directory / RECOVERY_FOLDER} was left by an interrupted recovery: "
            f"`klamm quorum recover --apply {directory}` completes it"
        )
    _check_permission(directory / BOOTSTRAP_FILE, os.R_OK)
    _check_permission(folder, os.R_OK | os.W_OK | os.X_OK)
    for path in folder.iterdir() if folder.exists() else ():
        # Apache Kafka's snapshots are read-only.
        _check_permission(path, os.R_OK | (os.W_OK if path.suffix == ".log" else 0))


def _check_permission(path: Path, mode: int) -> None:
    if path.exists() and not os.access(path, mode):
        raise StorageError(f"no permission to use {path}: give it to this user, or use another directory")


def _with_directory_ids(formatted: Mapping[Path, MetaProperties]) -> dict[Path, MetaProperties]:
    """Directories from before 3.7 get their id now, in their file."""
    complete: dict[Path, MetaProperties] = {}
    for directory, meta in formatted.items():
        complete[directory] = meta
        if meta.directory_id is None:
            complete[directory] = MetaProperties(meta.cluster_id, meta.node_id, new_directory_id())
            write_atomically(directory / meta_properties.FILE_NAME, complete[directory].render([""]).encode())
    return complete


def _known(directory_id: bytes | None) -> bytes:
    if directory_id is None:
        raise AssertionError("every directory has an id after _with_directory_ids")
    return directory_id


def is_blank(directories: Sequence[Path]) -> bool:
    """Whether all directories are empty: such a node without a file formats itself.

    The rest of a format that ended before its last step, which writes meta.properties, counts as empty.
    """
    names = (path.name for directory in directories if directory.exists() for path in directory.iterdir())
    return all(name in _BEFORE_FORMATTED for name in names)
