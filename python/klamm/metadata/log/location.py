"""The location of a node's metadata log: from the user's argument to the folder or the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from klamm.config import properties
from klamm.config.node_config import NodeConfigError, value_of
from klamm.formats.directories import METADATA_FOLDER
from klamm.formats.meta_properties import message_of
from klamm.metadata.errors import HistoryError

SNAPSHOT_SUFFIX: Final = ".checkpoint"
_SEGMENT_NAME: Final = re.compile(r"\d{20}\.log")
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class LogFolder(NamedTuple):
    """A metadata log with its snapshots."""

    path: Path


class SnapshotFile(NamedTuple):
    """One snapshot; `bootstrap.checkpoint`, whose name has no offset, ends at 0 in epoch 0."""

    path: Path
    end_offset: int
    epoch: int


def locate(path: Path) -> LogFolder | SnapshotFile:
    """The log of a log directory, of its `__cluster_metadata-0`, of server.properties, or a snapshot. HistoryError."""
    try:
        if path.is_dir():
            return LogFolder(_folder_in(path))
        if path.suffix == SNAPSHOT_SUFFIX:
            return _snapshot(path)
        if path.is_file():
            return LogFolder(_folder_in(metadata_directory(path)))
    except OSError as error:
        raise HistoryError(message_of(error)) from None
    raise HistoryError(
        f"{path} does not exist: name a node's log directory, its server.properties, or a snapshot (.checkpoint)"
    )


def metadata_directory(file: Path) -> Path:
    """The directory of the metadata log that a server.properties names. HistoryError."""
    try:
        given = properties.parse(properties.decode(file.read_bytes()))
        names = value_of(given, "log.dirs") or value_of(given, "log.dir")
        directory = value_of(given, "metadata.log.dir")
    except OSError as error:
        raise HistoryError(message_of(error)) from None
    except (NodeConfigError, properties.PropertiesError) as error:
        raise HistoryError(f"{file}: {error}") from None
    first = names[0] if isinstance(names, list) and names else names
    found = directory if directory is not None else first
    if not isinstance(found, str):
        raise HistoryError(f"{file} names neither log.dirs nor metadata.log.dir")
    return Path(found)


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """End offset and epoch; None for any other name."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def _folder_in(directory: Path) -> Path:
    inside = directory / METADATA_FOLDER
    if inside.is_dir():
        return inside
    if directory.is_dir():
        names = {one.name for one in directory.iterdir()}
        is_named = directory.resolve().name == METADATA_FOLDER
        if any(map(_is_of_a_log, names)) or (is_named and any(map(_is_segment, names))):
            return directory
    raise HistoryError(
        f"{directory} holds no metadata log: name a controller's log directory, with {METADATA_FOLDER} in it"
    )


def _is_segment(name: str) -> bool:
    return _SEGMENT_NAME.fullmatch(name) is not None


def _is_of_a_log(name: str) -> bool:
    """Every partition has segments: raft's own files or the folder's name identify the metadata log."""
    return name == "quorum-state" or parse_snapshot_name(name) is not None


def _snapshot(path: Path) -> SnapshotFile:
    if not path.is_file():
        raise HistoryError(f"{path} does not exist")
    end_offset, epoch = parse_snapshot_name(path.name) or (0, 0)
    return SnapshotFile(path, end_offset, epoch)
