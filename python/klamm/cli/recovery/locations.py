"""The change of places of one log directory, a step at a time, so that a run that was killed can be gone on with.

A directory has its metadata log, and while it is recovered a stage beside that: in it a note of what all of it is
about, the new log, and later the old one. The note is made first and goes last.

1. the new logs of all directories are made, whole and durable; nothing else is touched
2. directory by directory the old log goes into the stage, and the new one takes its place
3. when that is done everywhere, the stages go

So a directory that has its old log in its stage, or in its place a log of the note's epoch, means that all new logs are
whole: what was begun can be finished. Where none has, nothing was changed, and the stages can go.
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
    """A recovery that did not come to its end."""

    directories: tuple[Path, ...]
    """Those that have a stage, and those that a note names."""
    is_begun: bool
    """Whether a log changed its place: then it can only be finished."""
    note: Mapping[str, Any]
    """What that recovery would have said in the end, as far as it came to writing it down."""


def find_interrupted(directories: Iterable[Path]) -> Interrupted | None:
    """What an earlier recovery left in these directories or in those that it had with them. Raises ClientError."""
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
    """An empty stage with its note, durable; where the new log is to be made."""
    stage = directory / RECOVERY_FOLDER
    close_stage(directory)
    stage.mkdir()
    write_atomically(stage / _NOTE, json.dumps(note).encode())
    flush_directory(directory)
    made = stage / METADATA_FOLDER
    made.mkdir()
    return made


def put_in_place(directories: Iterable[Path]) -> None:
    """Steps 2 and 3, or what is left of them. Raises ClientError, and then it can be called again."""
    every = tuple(directories)
    try:
        for directory in every:
            _change_places(directory)
        for directory in every:
            close_stage(directory)
    except OSError as error:
        raise ClientError(f"{message_of(error)}; call this again, it goes on from there") from None


def close_stage(directory: Path) -> None:
    """The stage and what is in it go, the note last."""
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
    """Nothing where the run ended before the note was there, or after it was gone."""
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
