"""Checks of a controller's machine: files, disk, clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klamm.cli.doctor.facts import Facts
from klamm.cli.doctor.findings import Finding, error, warning
from klamm.cli.doctor.progress import leader_now

FULL_BYTES: Final = 64 << 20
NEARLY_FULL: Final = 0.05
NEARLY_FULL_BYTES: Final = 1 << 30
SLOW_FSYNC_MS: Final = 100.0
SKEW_MS: Final = 5_000


def check_files(facts: Facts) -> Iterator[Finding]:
    """Files that cannot be read."""
    for directory in facts.directories:
        for problem in directory.problems:
            if "quorum-state" in problem:
                yield error(
                    "quorum-state-unreadable",
                    f"{directory.name}: {problem}",
                    "a node without it could vote twice in one epoch, so it does not start. With other voters alive: "
                    "reformat it and let it join. Else: klamm quorum recover makes a new one",
                )
            else:
                yield error("unreadable", f"{directory.name}: {problem}", "restore it, or reformat the node")


def check_disks(facts: Facts) -> Iterator[Finding]:
    """A full, read-only or slow disk delays or stops the responses of the quorum."""
    for directory in facts.directories:
        free, total = directory.free_bytes, directory.total_bytes
        if not directory.is_writable:
            yield error(
                "disk-read-only",
                f"{directory.name} cannot be written",
                "mount it writable, or give it to the node's user",
            )
        if free is not None and free < FULL_BYTES:
            yield error(
                "disk-full",
                f"the disk of {directory.name} has {free >> 20} MiB left",
                "make room: a controller whose disk is full stops",
            )
        elif free is not None and total and free < min(NEARLY_FULL_BYTES, NEARLY_FULL * total):
            yield warning(
                "disk-nearly-full",
                f"the disk of {directory.name} has {free >> 20} MiB left, {100 * free / total:.0f} %",
                "make room before it is full",
            )
        if directory.fsync_ms is not None and directory.fsync_ms > SLOW_FSYNC_MS:
            yield warning(
                "disk-slow",
                f"the disk of {directory.name} took {directory.fsync_ms:.0f} ms to make a small write durable",
                "every metadata change and every vote waits for it: give the metadata log a disk of its own "
                "(metadata.log.dir), or raise controller.quorum.election.timeout.ms and fetch.timeout.ms",
            )


def check_clocks(facts: Facts) -> Iterator[Finding]:
    """Elections do not depend on synchronized clocks, but retention, tokens and readers of logs do."""
    leader = facts.leader
    if leader is not None:
        skew_ms = leader_now(leader) - leader.asked_at_ms
        if abs(skew_ms) > SKEW_MS:
            yield warning("clock-skew", f"the clock of leader {leader.name} is {_apart(skew_ms)} this machine's", _NTP)
    for directory in facts.directories:
        ahead_ms = directory.last_time_ms - facts.now_ms
        if ahead_ms > SKEW_MS:
            yield warning(
                "clock-skew",
                f"the last record of {directory.name} has a time {ahead_ms / 1000:.0f} s in the future",
                _NTP,
            )


_NTP: Final = "let NTP set the clocks of all nodes"


def _apart(skew_ms: int) -> str:
    return f"{abs(skew_ms) / 1000:.0f} s {'ahead of' if skew_ms > 0 else 'behind'}"
