"""`klamm quorum doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from klamm.admin.quorum import find_controllers
from klamm.cli.doctor.collection import collect
from klamm.cli.doctor.diagnosis import diagnose
from klamm.cli.doctor.facts import Facts
from klamm.cli.doctor.findings import Finding, Severity
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.quorum.quorum_options import BootstrapController, BootstrapServer
from klamm.cli.terminal.exits import Exit
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, print_json
from klamm.client.connection import parse_bootstrap


def doctor(
    nodes: Annotated[
        list[Path] | None,
        Argument(metavar="[NODE...]", help="Log directories or configuration files of nodes on this machine."),
    ] = None,
    *,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    probe_disk: Annotated[
        bool, Option("--probe-disk", help="Measure a small durable write in each directory.")
    ] = False,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Say why there is no leader, or what is about to go wrong, and what to do. Exits with 1 on a problem.

    Asks the named controllers and all voters that they know, and reads the
    named directories. Without either it asks the controllers of the broker's
    cluster. Changes nothing; the nodes may be running or stopped.

    \b
    [bold]Examples[/bold]
      klamm quorum doctor
      klamm quorum doctor --bootstrap-controller localhost:9093
      klamm quorum doctor server.properties
      klamm quorum doctor /data/controller-1 /data/controller-2 --json
    """
    config = client_keys(command_config)
    if bootstrap_controller is not None:
        bootstrap = parse_bootstrap(bootstrap_controller)
    else:
        bootstrap = [] if nodes else _controllers(bootstrap_server or DEFAULT_BOOTSTRAP, config)
    facts = collect(bootstrap, nodes or [], probe_disk=probe_disk, config=config)
    findings = diagnose(facts)
    if as_json:
        print_json({"summary": _summary(facts), "findings": list(map(_fields, findings))})
    else:
        _print(facts, findings)
    if findings:
        raise Exit(1)


def _controllers(server: str, config: dict[str, str]) -> list[tuple[str, int]]:
    way_out = "Name a node's server.properties or log directory, or --bootstrap-controller host:port"
    return find_controllers(server, config, way_out)


def _fields(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "severity": finding.severity.value}


def _print(facts: Facts, findings: list[Finding]) -> None:
    from rich.text import Text

    from klamm.cli.terminal.styled import console

    for finding in findings:
        style = "bold red" if finding.severity is Severity.ERROR else "bold yellow"
        head = Text.assemble((f"{finding.severity.value}: ", style), finding.text)
        console.print(head, soft_wrap=True)
        console.print(Text(f"  -> {finding.advice}"), soft_wrap=True)
    console.print(Text(_summary(facts)), soft_wrap=True)
    if not findings:
        console.print(Text("nothing is wrong"), soft_wrap=True)


def _summary(facts: Facts) -> str:
    voters = ", ".join(str(voter.key.id) for voter in facts.voters()) or "unknown"
    leader = facts.leader
    if leader is not None and leader.quorum is not None:
        return f"leader {leader.quorum.leader_id} in epoch {leader.quorum.leader_epoch}, voters {voters}"
    if facts.contacts:
        return f"no leader was found, voters {voters}"
    return f"directories alone: {len(facts.directories)}; voters {voters}"
