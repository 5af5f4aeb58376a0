"""Carrying out a plan: every new folder is made beside the old one and checked, then they change places.

Until the first change of places nothing that was there is touched. A run that ends before it is finished leaves
`.klamm-recovery` behind, with which no node starts; the same command again begins anew, from what is in place then.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klamm import _engine
from klamm._engine import StorageError
from klamm.cli.connection import ClientError
from klamm.cli.recovery.plan import Plan, removals
from klamm.cli.recovery.survivors import QUORUM_STATE, STAGE, STAGED_OLD, Survivor
from klamm.node.directories import (
    LOCK_FILE,
    METADATA_FOLDER,
    DirectoryLocks,
    flush_directory,
    write_atomically,
)
from klamm.node.meta_properties import message_of
from klamm.raft.control_records import KRAFT_VOTERS, LEADER_CHANGE, encode_leader_change, encode_voters
from klamm.raft.election_state import ElectionState, encode

_SEGMENT_BYTES: Final = 1 << 30
_SEGMENT_MS: Final = 7 * 24 * 3_600_000
_LEFT_OUT: Final = (QUORUM_STATE, f"{QUORUM_STATE}.tmp", LOCK_FILE)
_LEFT_OUT_SUFFIXES: Final = (".part", ".deleted", ".tmp", ".swap", ".cleaned", ".index", ".timeindex")


@contextmanager
def locked(survivors: list[Survivor]) -> Iterator[None]:
    """While nothing else has these directories. Raises ClientError when a node does."""
    try:
        # A directory without a lock file was never a running node's, and a dry run makes none.
        directories = dict.fromkeys(one.directory for one in survivors)
        locks = DirectoryLocks(directory for directory in directories if (directory / LOCK_FILE).exists())
    except StorageError as error:
        raise ClientError(f"{error}; a quorum is re-formed while its nodes are down") from None
    with locks:
        yield


def carry_out(plan: Plan, backup: Callable[[Survivor], Path], now_ms: int) -> list[Path]:
    """Do it; where the old folders are kept. Raises ClientError with nothing changed, or says what is."""
    kept = {one.directory: backup(one) for one in plan.targets}
    for path in kept.values():
        if path.exists():
            raise ClientError(f"{path} exists already: nothing was changed; move it away, or name another --backup")
    try:
        for one in plan.targets:
            _make(plan, one, now_ms)
            _copy(one.folder, kept[one.directory])
    except (OSError, StorageError) as error:
        for one in plan.targets:
            shutil.rmtree(one.directory / STAGE, ignore_errors=True)
        text = message_of(error) if isinstance(error, OSError) else str(error)
        raise ClientError(f"{text}; nothing was changed") from None
    for one in plan.targets:
        _put_in_place(one)
    return list(kept.values())


def _make(plan: Plan, target: Survivor, now_ms: int) -> None:
    """The target's new folder, whole and durable, in its stage."""
    stage = target.directory / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    made = stage / METADATA_FOLDER
    made.mkdir(parents=True)
    _copy_log(plan.chosen.folder, made)
    _append(plan, made, now_ms)
    state = ElectionState(plan.epoch)
    write_atomically(made / QUORUM_STATE, encode(state, plan.kraft_version, plan.new_voters.ids))
    _give_to_owner_of(target.folder, stage)
    flush_directory(made)
    flush_directory(stage)


def _copy_log(source: Path, made: Path) -> None:
    """What makes the log; indexes are made anew from it."""
    for path in source.iterdir():
        if path.is_file() and path.name not in _LEFT_OUT and not path.name.endswith(_LEFT_OUT_SUFFIXES):
            _copy_file(path, made / path.name)


def _append(plan: Plan, made: Path, now_ms: int) -> None:
    """Check the copy, cut a torn end, and with kraft.version 1 write who the voters are."""
    log = _engine.MetadataLog(made, segment_bytes=_SEGMENT_BYTES, segment_ms=_SEGMENT_MS, now_ms=now_ms)
    try:
        if (log.end_offset, log.last_epoch) != plan.chosen.end:
            raise StorageError(
                f"the copy of {plan.chosen.folder} ends at {log.end_offset} in epoch {log.last_epoch}, not at "
                f"{plan.chosen.end.offset} in epoch {plan.chosen.end.epoch}"
            )
        if plan.kraft_version > 0:
            ids = plan.new_voters.ids
            records = [(LEADER_CHANGE, encode_leader_change(ids[0], ids, ids))]
            records += [(KRAFT_VOTERS, encode_voters(voters)) for voters in removals(plan)]
            log.append_control(records, plan.epoch, now_ms)
    finally:
        log.close()


def _put_in_place(target: Survivor) -> None:
    stage = target.directory / STAGE
    old = stage / STAGED_OLD
    target.folder.rename(old)
    (stage / METADATA_FOLDER).rename(target.folder)
    flush_directory(target.directory)
    shutil.rmtree(stage)
    flush_directory(target.directory)


def _copy(source: Path, target: Path) -> None:
    """A whole folder, durable."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            _copy_file(path, target / path.name)
    _give_to_owner_of(source, target)
    flush_directory(target)
    flush_directory(target.parent)


def _copy_file(source: Path, target: Path) -> None:
    shutil.copy2(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _give_to_owner_of(like: Path, folder: Path) -> None:
    """What root makes must be the node's: it would not start otherwise."""
    owner = like.stat()
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def default_backup(one: Survivor, now_s: float) -> Path:
    """Beside the log directory, which itself must hold nothing that is no partition."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    directory = one.directory.resolve()
    return directory.with_name(f"{directory.name}-{METADATA_FOLDER}-before-{stamp}")
