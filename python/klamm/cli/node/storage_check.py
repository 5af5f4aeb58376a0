"""`klamm storage check`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from klamm.cli.framework.options import Argument, Option
from klamm.cli.node.storage_examination import (
    DAMAGED,
    MISSING,
    NOTE,
    CheckedDirectory,
    CheckedLog,
    Finding,
    check_stopped,
    directories_of,
    examine,
    findings_of,
)
from klamm.cli.terminal.exits import Exit
from klamm.cli.terminal.output import AsJson, is_terminal, print_json, print_table, say, say_error
from klamm.client import ClientError


def check(
    place: Annotated[
        Path,
        Argument(
            metavar="DIR|SERVER.PROPERTIES", help="A log directory, the directory of one log, or a configuration file."
        ),
    ],
    *,
    deep: Annotated[bool, Option("--deep", help="Verify the checksum of every batch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is intact, damaged or missing in the files of a stopped node, and what a start does about it.

    Works on files of klamm and of Apache Kafka, in place or copied. Changes
    nothing. Without --deep it reads every index and the headers of all
    batches, and verifies the checksums that a start would verify. Exits with
    0 if everything is intact, with 1 if something is damaged or missing.

    \b
    [bold]Examples[/bold]
      klamm storage check klamm-data
      klamm storage check server.properties --deep
      klamm storage check /backup/data/orders-0 --deep --json
    """
    try:
        directories = directories_of(place)
        check_stopped(directories)
    except ClientError as error:
        say_error(str(error))
        raise Exit(2) from None
    with _shown() as on_progress:
        checked = examine(directories, deep=deep, on_progress=on_progress)
    findings = findings_of(checked)
    if as_json:
        print_json(_fields(checked, findings, deep=deep))
    else:
        _print(checked, findings, deep=deep)
    if any(one.kind != NOTE for one in findings):
        raise Exit(1)


def _fields(directories: Sequence[CheckedDirectory], findings: Sequence[Finding], *, deep: bool) -> dict[str, Any]:
    return {
        "deep": deep,
        "intact": all(one.kind == NOTE for one in findings),
        "directories": [
            {"path": str(one.path), "clean": one.is_clean, "logs": list(map(_log_fields, one.logs))}
            for one in directories
        ],
        "findings": list(map(_finding_fields, findings)),
    }


def _log_fields(log: CheckedLog) -> dict[str, Any]:
    return {
        "path": str(log.path),
        "intact": all(one.kind == NOTE for one in log.findings),
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "segments": log.segments,
        "batches": log.batches,
        "bytes": log.bytes,
    }


def _finding_fields(one: Finding) -> dict[str, Any]:
    first, after = one.offsets or (None, None)
    last = None if after is None or first is None or after <= first else after - 1
    offsets = {"first_offset": first, "last_offset": last}
    place = {"kind": one.kind, "file": str(one.path), "byte": one.byte}
    return {**place, **offsets, "reason": one.reason, "action": one.action}


def _print(directories: Sequence[CheckedDirectory], findings: Sequence[Finding], *, deep: bool) -> None:
    rows = [
        (log.path, log.start_offset, log.end_offset, log.segments, log.batches, log.bytes, _state(log))
        for one in directories
        for log in one.logs
    ]
    if rows:
        print_table(("LOG", "#START", "#END", "#SEGMENTS", "#BATCHES", "#BYTES", "STATE"), rows)
    for finding in findings:
        print(_line(finding))
        print(f"  -> {finding.action}")
    counts = {kind: sum(one.kind == kind for one in findings) for kind in (DAMAGED, MISSING)}
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    say(summary or "everything is intact")
    if not deep:
        say("--deep verifies the checksum of every batch")


def _state(log: CheckedLog) -> str:
    kinds = {one.kind for one in log.findings}
    return next((kind for kind in (DAMAGED, MISSING) if kind in kinds), "intact")


def _line(finding: Finding) -> str:
    place = [str(finding.path)]
    if finding.byte is not None:
        place.append(f"byte {finding.byte}")
    if finding.offsets is not None:
        first, after = finding.offsets
        unknown, one = f"offsets from {first} on", f"offset {first}"
        place.append(unknown if after <= first else one if after == first + 1 else f"offsets {first} to {after - 1}")
    return f"{finding.kind}: {', '.join(place)}: {finding.reason}"


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, on a terminal only."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from klamm.cli.terminal.styled import errors

    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("checking", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
