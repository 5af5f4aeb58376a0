"""Reads the directories of nodes on this machine."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from klamm._engine.quorum import StorageError
from klamm.cli.doctor.facts import Directory, NodeConfigFacts
from klamm.cli.recovery.survivors import QUORUM_STATE, read_election
from klamm.client import ClientError
from klamm.config.node_config import CONTROLLER, NodeConfigError, parse
from klamm.config.sources import read_file
from klamm.formats import meta_properties
from klamm.formats.directories import METADATA_FOLDER, lock_holder
from klamm.formats.meta_properties import message_of
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.history import History
from klamm.metadata.log.location import metadata_directory
from klamm.metadata.state import controllers_of
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.voters.voter_set import VoterSet

_PROBE = ".klamm-doctor"


def look(path: Path, *, probe_disk: bool) -> Directory:
    """Inspect a log directory, its metadata log, or a server.properties. Raises ClientError if it does not exist."""
    config, problems = None, []
    if path.is_file():
        try:
            config = _config(path)
        except NodeConfigError as error:
            problems.append(f"{path}: {error}")
        try:
            directory = metadata_directory(path)
        except HistoryError as error:
            raise ClientError(str(error)) from None
    elif path.is_dir():
        directory = path.parent if path.name == METADATA_FOLDER else path
    else:
        raise ClientError(f"{path} does not exist: name a node's log directory, or its server.properties")
    found = Directory(directory, config=config)
    found = _with_meta(found, problems)
    found = _with_raft(found, problems)
    found = _with_disk(found, problems, probe_disk=probe_disk)
    return found._replace(problems=tuple(problems))


def _config(file: Path) -> NodeConfigFacts:
    config = parse(read_file(file))
    return NodeConfigFacts(
        file,
        config.node_id,
        CONTROLLER in config.roles,
        config.voters,
        config.bootstrap_controllers,
        tuple((one.host, one.port) for one in config.advertised_controllers if one.port),
    )


def _with_meta(found: Directory, problems: list[str]) -> Directory:
    try:
        ensemble = meta_properties.load([found.path])
    except StorageError as error:
        problems.append(str(error))
        return found
    problems += ensemble.failed.values()
    if found.path in ensemble.empty:
        problems.append(f"{found.path} is not formatted (it has no {meta_properties.FILE_NAME})")
    return found._replace(meta=ensemble.formatted.get(found.path))


def _with_raft(found: Directory, problems: list[str]) -> Directory:
    folder = found.path / METADATA_FOLDER
    if not folder.is_dir():
        return found  # a node that never started
    election, problem = read_election(folder / QUORUM_STATE)
    if problem is not None:
        problems.append(problem if QUORUM_STATE in problem else f"{QUORUM_STATE}: {problem}")
    else:
        found = found._replace(election=election)
    try:
        history = History(folder)
        state = history.state_at()
    except HistoryError as error:
        problems.append(str(error))
        return found
    return found._replace(
        end=OffsetAndEpoch(history.end_offset(), max(state.epoch, 0)),
        last_time_ms=state.timestamp_ms,
        voters=VoterSet.of(state.quorum.voters),
        kraft_version=state.quorum.kraft_version,
        registered={
            one.id: (one.endpoints[0].host, one.endpoints[0].port)
            for one in controllers_of(state.image)
            if one.endpoints
        },
    )


def _with_disk(found: Directory, problems: list[str], *, probe_disk: bool) -> Directory:
    try:
        usage = shutil.disk_usage(found.path)
        found = found._replace(
            free_bytes=usage.free,
            total_bytes=usage.total,
            is_writable=os.access(found.path, os.W_OK),
            is_running=lock_holder(found.path) is not None,
        )
        return found._replace(fsync_ms=_fsync_ms(found.path)) if probe_disk else found
    except OSError as error:
        problems.append(message_of(error))
        return found


def _fsync_ms(directory: Path) -> float:
    """The longest of three small durable writes."""
    path = directory / _PROBE
    try:
        with path.open("wb") as file:
            return max(_timed_write(file.fileno()) for _ in range(3))
    finally:
        path.unlink(missing_ok=True)


def _timed_write(file: int) -> float:
    begun = time.monotonic()
    os.write(file, bytes(4096))
    os.fsync(file)
    return (time.monotonic() - begun) * 1000
