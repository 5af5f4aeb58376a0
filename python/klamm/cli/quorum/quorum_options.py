"""Options for the connection and the output of changes, for `klamm quorum` and `klamm features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from klamm.admin.quorum import QuorumClient
from klamm.cli.framework.command_config import client_keys
from klamm.cli.framework.options import Option
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, print_json, say

_PANEL = "Where and how"
BootstrapServer = Annotated[
    str | None,
    Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        envvar="KLAMM_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help=f"Any broker of the cluster; {DEFAULT_BOOTSTRAP} by default.",
        panel=_PANEL,
    ),
]
BootstrapController = Annotated[
    str | None,
    Option(
        "--bootstrap-controller",
        "-C",
        metavar="HOST:PORT,...",
        help="Any controller of the cluster, instead of a broker.",
        panel=_PANEL,
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show the request without sending it.")]


def connect(server: str | None, controller: str | None, command_config: Path | None) -> QuorumClient:
    """Connect to the controller if one is given, otherwise to the broker. Raises ClientError."""
    config = client_keys(command_config)
    if controller is not None:
        return QuorumClient(controller, is_controller=True, config=config)
    return QuorumClient(server or DEFAULT_BOOTSTRAP, is_controller=False, config=config)


def print_change(verb: str, done: str, what: str, value: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    """Print a change that was made, or would be made: `what` for a person, `value` as JSON."""
    if as_json:
        print_json({"dryRun" if dry_run else done: value})
    else:
        say(f"would {verb} {what}" if dry_run else f"{done}: {what}")
