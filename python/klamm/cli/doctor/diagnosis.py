"""All checks, in the order in which a person should read their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from klamm.cli.doctor import identity, machine, progress, reach
from klamm.cli.doctor.facts import Facts
from klamm.cli.doctor.findings import Finding, Severity

CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    reach.check_majority,
    reach.check_reach,
    identity.check_clusters,
    identity.check_node_ids,
    identity.check_directory_ids,
    identity.check_voters,
    reach.check_localhost,
    progress.check_leaders,
    progress.check_epochs,
    progress.check_followers,
    progress.check_logs,
    machine.check_files,
    machine.check_disks,
    machine.check_clocks,
    reach.check_even,
)


def diagnose(facts: Facts) -> list[Finding]:
    """All findings, errors first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)
