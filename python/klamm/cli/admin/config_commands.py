"""`klamm configs`."""

from __future__ import annotations

from typing import Annotated

from klamm.admin import configs as config_admin
from klamm.admin.client import Client
from klamm.admin.configs import Entry
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, examples, print_json, print_table, say

group = Group(
    examples(
        "Describe, set and unset configs of topics, brokers and groups.",
        "klamm configs describe topic orders --all",
        "klamm configs set topic orders retention.ms=3600000",
        "klamm configs unset topic orders retention.ms",
        "klamm configs set broker '*' log.retention.ms=86400000",
    )
)

Kind = Annotated[str, Argument(metavar="KIND", help="The resource type: topic, broker, group or client-metrics.")]
Name = Annotated[
    str, Argument(metavar="NAME", help="The topic, broker id, group or subscription; * means all brokers.")
]


@group.command("describe")
def describe(
    kind: Kind,
    name: Name,
    *,
    all_keys: Annotated[bool, Option("--all", "-a", help="Include keys with default values.")] = False,
    documentation: Annotated[bool, Option("--doc", "-d", help="Show what each key does.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show configs, and where each value comes from.

    \b
    [bold]Examples[/bold]
      klamm configs describe topic orders
      klamm configs describe topic orders --all --doc
      klamm configs describe broker 1
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = config_admin.describe(client, kind, _resource(kind, name), with_documentation=documentation)
    shown = [entry for entry in found if all_keys or not entry.is_default]
    if as_json:
        print_json([_as_json(entry) for entry in shown])
    elif shown:
        columns = ("KEY", "VALUE", "SOURCE", *(["WHAT IT DOES"] if documentation else []))
        print_table(columns, (_row(entry, documentation) for entry in shown))
    else:
        say(f"nothing is set on {kind} {name}; --all shows the defaults")


@group.command("set")
def set_configs(
    kind: Kind,
    name: Name,
    pairs: Annotated[list[str], Argument(metavar="KEY=VALUE...", help="The configurations to set.")],
    *,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Let the broker validate the request without changing anything.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Set configs. Other configs keep their values.

    \b
    [bold]Examples[/bold]
      klamm configs set topic orders retention.ms=604800000
      klamm configs set topic prices cleanup.policy=compact,delete
      klamm configs set broker '*' log.cleaner.threads=2
    """
    changes = config_admin.parse_changes(pairs)
    with Client(bootstrap, config=client_keys(command_config)) as client:
        config_admin.alter(client, kind, _resource(kind, name), changes, validate_only=dry_run)
    if as_json:
        print_json({"set": {} if dry_run else changes})
    else:
        say(f"{'could be set' if dry_run else 'set'} on {kind} {name}: {', '.join(changes)}")


@group.command("unset")
def unset(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str], Argument(metavar="KEY...", help="The keys to reset to their defaults.")],
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Reset configs to their defaults.

    \b
    [bold]Examples[/bold]
      klamm configs unset topic orders retention.ms
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        config_admin.alter(client, kind, _resource(kind, name), dict.fromkeys(keys))
    if as_json:
        print_json({"unset": keys})
    else:
        say(f"unset on {kind} {name}: {', '.join(keys)}")


def _resource(kind: str, name: str) -> str:
    """The name of the resource in requests; the default for all brokers is an empty name."""
    return "" if kind == "broker" and name == "*" else name


def _row(entry: Entry, documentation: bool) -> list[object]:
    value = "(hidden)" if entry.is_sensitive else entry.value
    row: list[object] = [entry.name, value, entry.source]
    return [*row, entry.documentation or ""] if documentation else row


def _as_json(entry: Entry) -> dict[str, object]:
    return {
        "key": entry.name,
        "value": entry.value,
        "source": entry.source,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        **({"documentation": entry.documentation} if entry.documentation else {}),
    }
