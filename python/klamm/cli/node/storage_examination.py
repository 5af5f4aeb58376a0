"""Examines the directories of a stopped node: what is intact, damaged or missing. Changes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm._engine.quorum import StorageError
from klamm._engine.tools import StorageCheck
from klamm.cli.recovery.survivors import QUORUM_STATE, read_election
from klamm.client import ClientError
from klamm.config.node_config import NodeConfigError, parse
from klamm.config.sources import read_file
from klamm.formats import meta_properties
from klamm.formats.directories import BOOTSTRAP_FILE, METADATA_FOLDER, lock_holder
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.history import History
from klamm.protocol.uuids import uuid_text

DAMAGED: Final = "damaged"
MISSING: Final = "missing"
NOTE: Final = "note"
_ORDER: Final = (DAMAGED, MISSING, NOTE)
_LOOK_S: Final = 0.1
_THREADS_MAX: Final = 8
_REFUSES: Final = "a start refuses"


class Finding(NamedTuple):
    """A problem or, as a note, something that a start changes."""

    kind: str
    path: Path
    byte: int | None
    offsets: tuple[int, int] | None
    """`[first, next)`."""
    reason: str
    action: str
    """What a start does about it."""


class CheckedLog(NamedTuple):
    """The folder of a partition."""

    path: Path
    topic_id: bytes | None
    start_offset: int
    end_offset: int
    segments: int
    batches: int
    bytes: int
    findings: tuple[Finding, ...]


class CheckedDirectory(NamedTuple):
    """A log directory, or the folder of a single log."""

    path: Path
    is_clean: bool
    """Whether it was shut down cleanly."""
    logs: tuple[CheckedLog, ...]
    findings: tuple[Finding, ...]
    """Findings about files outside of logs."""


def directories_of(path: Path) -> list[Path]:
    """The directories of a server.properties, or the directory itself. Raises ClientError."""
    if path.is_dir():
        return [path]
    if not path.exists():
        raise ClientError(f"{path} does not exist: name a log directory, or a node's server.properties")
    try:
        return list(parse(read_file(path)).all_dirs)
    except NodeConfigError as error:
        raise ClientError(str(error)) from None


def check_stopped(directories: Sequence[Path]) -> None:
    """Raises ClientError if a running node uses one of them, because its files would change during the check."""
    for directory in directories:
        try:
            pid = lock_holder(directory)
        except OSError:
            continue  # a directory that cannot be read is reported later
        if pid is not None:
            raise ClientError(f"{directory} is used by a running node, process {pid}: stop it first, or check a copy")


def examine(
    directories: Sequence[Path], *, deep: bool, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> list[CheckedDirectory]:
    """Examine directories; `deep` verifies every checksum. `on_progress` receives the bytes read and their total."""
    check = StorageCheck()
    found: list[CheckedDirectory] = []

    def run() -> None:
        threads = min(max(os.cpu_count() or 1, 2), _THREADS_MAX)
        for path, is_clean, logs, findings in check.directories(directories, deep, threads):
            checked = [CheckedLog(*log[:-1], _findings(log[-1])) for log in logs]
            found.append(CheckedDirectory(path, is_clean, tuple(checked), _findings(findings)))

    worker = threading.Thread(target=run, name="storage check")
    worker.start()
    try:
        on_progress(*check.progress())
        while worker.is_alive():
            worker.join(_LOOK_S)
            on_progress(*check.progress())
    except BaseException:  # Ctrl-C: stop the thread
        check.cancel()
        raise
    finally:
        worker.join()
    whole = [one._replace(findings=(*one.findings, *_of_directory(one))) for one in found]
    return _with_ensemble(_with_topics(whole))


def findings_of(directories: Sequence[CheckedDirectory]) -> list[Finding]:
    """All findings, the most severe first."""
    found = [one for directory in directories for one in directory.findings]
    found += [one for directory in directories for log in directory.logs for one in log.findings]
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), str(one.path), one.byte or 0))


def _findings(rows: Sequence[tuple[str, Path, int | None, tuple[int, int] | None, str, str]]) -> tuple[Finding, ...]:
    return tuple(Finding(*row) for row in rows)


def _damaged(path: Path, reason: str, action: str) -> Finding:
    return Finding(DAMAGED, path, None, None, reason, action)


def _missing(path: Path, reason: str, action: str) -> Finding:
    return Finding(MISSING, path, None, None, reason, action)


def _of_directory(directory: CheckedDirectory) -> Iterator[Finding]:
    """meta.properties, bootstrap.checkpoint and quorum-state."""
    path = directory.path
    if [log.path for log in directory.logs] == [path]:
        if path.name == METADATA_FOLDER:
            yield from _of_quorum_state(path, directory.logs[0])
        return
    file = path / meta_properties.FILE_NAME
    try:
        ensemble = meta_properties.load([path])
    except StorageError as error:
        yield _damaged(file, str(error).removeprefix(f"{file}: "), _REFUSES)
    else:
        for reason in ensemble.failed.values():
            yield _damaged(file, reason, "a start continues without the directory, or refuses if it has the metadata")
        if ensemble.empty:
            yield _missing(file, "the directory is not formatted, or it was lost", _REFUSES)
    bootstrap = path / BOOTSTRAP_FILE
    if bootstrap.exists() and (found := StorageCheck.snapshot(bootstrap)) is not None:
        yield Finding(*found)
    for log in directory.logs:
        if log.path.name == METADATA_FOLDER:
            yield from _of_quorum_state(log.path, log)


def _of_quorum_state(folder: Path, log: CheckedLog) -> Iterator[Finding]:
    file = folder / QUORUM_STATE
    election, problem = read_election(file)
    if problem is not None:
        yield _damaged(file, problem.removeprefix(f"{file}: "), _REFUSES)
    elif not file.exists() and log.batches:
        action = "a sole voter continues from its log; another one refuses to start"
        yield _missing(file, "the metadata log has batches", action)
    segment = folder / f"{log.start_offset:020}.log"
    if election.epoch > 0 and not log.batches and all(one.path != segment for one in log.findings):
        action = "a sole voter refuses to start if partitions are there; another one fetches the log again"
        yield _missing(segment, f"the metadata log is empty, and {QUORUM_STATE} has epoch {election.epoch}", action)


def _with_ensemble(directories: list[CheckedDirectory]) -> list[CheckedDirectory]:
    """All directories must be of one cluster and node."""
    paths = [one.path for one in directories]
    try:
        ensemble = meta_properties.load(paths)
        node_ids = [meta.node_id for meta in ensemble.formatted.values()]
        if node_ids:
            meta_properties.verify(ensemble, node_ids[0])
    except StorageError as error:
        text = str(error)
        for number, one in enumerate(directories):
            file = one.path / meta_properties.FILE_NAME
            if text.startswith(f"{file}: ") and all(found.path != file for found in one.findings):
                finding = _damaged(file, text.removeprefix(f"{file}: "), _REFUSES)
                directories[number] = one._replace(findings=(*one.findings, finding))
    return directories


def _with_topics(directories: list[CheckedDirectory]) -> list[CheckedDirectory]:
    """Add findings about folders of topics that are not in the metadata."""
    logs = {log.path: log for one in directories for log in one.logs if log.path.name == METADATA_FOLDER}
    sound = [path for path, log in logs.items() if not any(one.kind != NOTE for one in log.findings)]
    if not sound:
        return directories
    try:
        image = History(sound[0]).state_at().image.stable
    except HistoryError:
        return directories  # the findings name the problem
    checked = []
    for one in directories:
        with_topics = tuple(log._replace(findings=(*log.findings, *_of_topic(log, image.topic_id))) for log in one.logs)
        checked.append(one._replace(logs=with_topics))
    return checked


def _of_topic(log: CheckedLog, topic_id: Callable[[str], bytes | None]) -> Iterator[Finding]:
    if log.topic_id is None or log.path.name == METADATA_FOLDER:
        return
    topic = log.path.name.rpartition("-")[0]
    known = topic_id(topic)
    file = log.path / "partition.metadata"
    action = "a start sets the folder aside as a stray: its records are not served"
    if known is None:
        yield Finding(NOTE, file, None, None, f"the metadata has no topic {topic}", action)
    elif known != log.topic_id:
        text = f"topic_id {uuid_text(log.topic_id)}, and the metadata has "
        yield _damaged(file, f"{text}{uuid_text(known)} for {topic}", action)
