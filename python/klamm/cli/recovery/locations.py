"""Swaps the metadata log of a directory in steps, so that an interrupted run can be completed.

During a recovery a directory has a stage beside its metadata log. The stage contains a note that describes the
recovery, the new log, and later the old one. The note is created first and removed last.

1. Create the new logs of all directories, complete and durable; change nothing else.
2. In one directory after another, move the old log into the stage and the new one to its place.
3. After all directories are swapped, remove the stages.

If a directory has its old log in the stage, or a log with the note's epoch in its place, all new logs are complete and
the recovery can be completed. If no directory has, nothing was changed and the stages can be removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.cli.recovery.survivors import QUORUM_STATE, read_election
from klamm.client import ClientError
from klamm.formats.directories import (
    METADATA_FOLDER,
    RECOVERY_FOLDER,
    flush_directory,
    is_in_recovery,
    write_atomically,
)
from klamm.formats.meta_properties import message_of

_OLD: Final = "old"
_NOTE: Final = "note.json"


class Interrupted(NamedTuple):
    """A recovery that was interrupted."""

    directories: tuple[Path, ...]
    """The directories with a stage, and those that a note names."""
    is_begun: bool
    """Whether a log was already swapped: then the recovery can only be completed."""
    note: Mapping[str, Any]
    """The output of that recovery, as far as it was written down."""


def find_interrupted(directories: Iterable[Path]) -> Interrupted | None:
    """The interrupted recovery of these directories, or of the directories in its notes. Raises ClientError."""
    found = [one for one in dict.fromkeys(path.resolve() for path in directories) if is_in_recovery(one)]
    if not found:
        return None
    notes = {directory: note for directory in found if (note := _read_note(directory))}
    note = next(iter(notes.values()), {})
    for directory, other in notes.items():
        if other != note:
            raise ClientError(
                f"{next(iter(notes))} and {directory} were left by two recoveries: name one of them, to end that first"
            )
    every = tuple(dict.fromkeys([*found, *map(Path, note.get("directories", ()))]))
    return Interrupted(every, any(_is_begun(one, note) for one in every), note)


def open_stage(directory: Path, note: Mapping[str, Any]) -> Path:
    """Create an empty stage with its note, durably; the new log is created in it."""
    stage = directory / RECOVERY_FOLDER
    close_stage(directory)
    stage.mkdir()
    write_atomically(stage / _NOTE, json.dumps(note).encode())
    flush_directory(directory)
    made = stage / METADATA_FOLDER
    made.mkdir()
    return made


def put_in_place(directories: Iterable[Path]) -> None:
    """Steps 2 and 3, or the rest of them. After a ClientError it can be called again."""
    every = tuple(directories)
    try:
        for directory in every:
            _change_places(directory)
        for directory in every:
            close_stage(directory)
    except OSError as error:
        raise ClientError(f"{message_of(error)}; call this again to continue") from None


def close_stage(directory: Path) -> None:
    """Remove the stage, its note last."""
    stage = directory / RECOVERY_FOLDER
    if not stage.exists():
        return
    for path in stage.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    shutil.rmtree(stage)
    flush_directory(directory)


def _change_places(directory: Path) -> None:
    stage, folder = directory / RECOVERY_FOLDER, directory / METADATA_FOLDER
    made, old = stage / METADATA_FOLDER, stage / _OLD
    if not made.exists():
        return
    if folder.exists():
        folder.rename(old)
    made.rename(folder)
    flush_directory(stage)
    flush_directory(directory)


def _is_begun(directory: Path, note: Mapping[str, Any]) -> bool:
    folder = directory / METADATA_FOLDER
    election, _ = read_election(folder / QUORUM_STATE)
    return (directory / RECOVERY_FOLDER / _OLD).exists() or (folder.exists() and election.epoch == note.get("epoch"))


def _read_note(directory: Path) -> Mapping[str, Any]:
    """The note; empty if the run ended before it was written or after it was removed."""
    file = directory / RECOVERY_FOLDER / _NOTE
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        if (old := file.with_name(_OLD)).exists():
            raise ClientError(
                f"{old} is there, but no {file}: rename {old} to {directory / METADATA_FOLDER} if that is not there, "
                f"and remove {file.parent}"
            ) from None
        return {}
    except OSError as error:
        raise ClientError(message_of(error)) from None
    except ValueError as error:
        raise ClientError(f"{file} is damaged: {error}") from None
    return found if isinstance(found, dict) else {}
