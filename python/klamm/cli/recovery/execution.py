"""Executes a plan: creates every new log beside the old one, verifies it, then swaps them.

Nothing existing is changed before the first swap. An interrupted run leaves `.klamm-recovery`, with which no node
starts; the next call completes it (`locations`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from klamm._engine.quorum import MetadataLog, StorageError
from klamm.cli.recovery.locations import close_stage, open_stage, put_in_place
from klamm.cli.recovery.plan import Plan, removals
from klamm.cli.recovery.survivors import QUORUM_STATE, Survivor
from klamm.client import ClientError
from klamm.formats.directories import (
    LOCK_FILE,
    METADATA_FOLDER,
    DirectoryLocks,
    flush_directory,
    write_atomically,
)
from klamm.formats.meta_properties import message_of
from klamm.raft.election.election_state import ElectionState, encode
from klamm.raft.log.control_records import KRAFT_VOTERS, LEADER_CHANGE, encode_leader_change, encode_voters

_SEGMENT_BYTES: Final = 1 << 30
_SEGMENT_MS: Final = 7 * 24 * 3_600_000
_RECOVERY_POINT: Final = "klamm-recovery-point"  # of the old log: the new one may end before it
_LEFT_OUT: Final = (QUORUM_STATE, f"{QUORUM_STATE}.tmp", LOCK_FILE, _RECOVERY_POINT)
_LEFT_OUT_SUFFIXES: Final = (".part", ".deleted", ".tmp", ".swap", ".cleaned", ".index", ".timeindex")


@contextmanager
def locked(directories: Iterable[Path]) -> Iterator[None]:
    """Lock these directories. Raises ClientError if a node uses one."""
    try:
        # A directory without a lock file was never used by a running node, and a dry run creates none.
        once = dict.fromkeys(directory.resolve() for directory in directories)
        locks = DirectoryLocks(directory for directory in once if (directory / LOCK_FILE).exists())
    except StorageError as error:
        raise ClientError(f"{error}; a quorum is re-formed while its nodes are down") from None
    with locks:
        yield


def carry_out(plan: Plan, kept: Mapping[int, Path], note: Mapping[str, Any], now_ms: int) -> None:
    """Execute the plan. `kept` is the backup folder of each node's old log; `note` is stored for a later call.

    Raises ClientError if nothing was changed, or if another call must complete the recovery.
    """
    try:
        for one in plan.targets:
            _make(plan, one, note, now_ms)
            _copy(one.folder, kept[one.key.id])
    except (OSError, StorageError) as error:
        for one in plan.targets:
            close_stage(one.directory)
        text = message_of(error) if isinstance(error, OSError) else str(error)
        raise ClientError(f"{text}; nothing was changed") from None
    put_in_place(one.directory for one in plan.targets)


def _make(plan: Plan, target: Survivor, note: Mapping[str, Any], now_ms: int) -> None:
    """Create the target's new log in its stage, complete and durable."""
    made = open_stage(target.directory, note)
    _copy_log(plan.chosen.folder, made)
    _append(plan, made, now_ms)
    state = ElectionState(plan.epoch)
    write_atomically(made / QUORUM_STATE, encode(state, plan.kraft_version, plan.new_voters.ids))
    _give_to_owner_of(target.folder, made.parent)
    flush_directory(made)
    flush_directory(made.parent)


def _copy_log(source: Path, made: Path) -> None:
    """Copy the segments; indexes are rebuilt from them."""
    for path in source.iterdir():
        if path.is_file() and path.name not in _LEFT_OUT and not path.name.endswith(_LEFT_OUT_SUFFIXES):
            _copy_file(path, made / path.name)


def _append(plan: Plan, made: Path, now_ms: int) -> None:
    """Verify the copy, truncate an incomplete end, and with kraft.version 1 append the new voters."""
    log = MetadataLog(
        made,
        segment_bytes=_SEGMENT_BYTES,
        segment_ms=_SEGMENT_MS,
        now_ms=now_ms,
        accept_loss=plan.chosen.loss is not None,
    )
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


def _copy(source: Path, target: Path) -> None:
    """Copy a whole folder durably."""
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
    """Files created by root must belong to the node's user; otherwise the node would not start."""
    owner = like.stat()
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def backups(plan: Plan, folder: Path | None, now_s: float) -> dict[int, Path]:
    """The backup folder of each node's old log, which does not exist yet."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    return {one.key.id: _backup(one, folder, stamp) for one in plan.targets}


def _backup(one: Survivor, folder: Path | None, stamp: str) -> Path:
    """Beside the log directory, which must contain only partitions, unless a folder is given."""
    directory = one.directory.resolve()
    path = directory.with_name(f"{directory.name}-{METADATA_FOLDER}-before-{stamp}")
    if folder is not None:
        path = folder.resolve() / f"node-{one.key.id}-{path.name}"
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())
