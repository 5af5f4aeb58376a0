"""`klamm features`, like `kafka-features`."""

from __future__ import annotations

from typing import Annotated, Final

from klamm.admin import features as feature_admin
from klamm.admin.quorum import QuorumClient
from klamm.cli.framework.command_config import CommandConfig
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.quorum.quorum_options import BootstrapController, BootstrapServer, DryRun, connect, print_change
from klamm.cli.terminal.exits import BadParameter
from klamm.cli.terminal.output import AsJson, examples, print_json, print_table
from klamm.config.node_config import NodeConfigError
from klamm.formats.storage import level_of_release
from klamm.protocol.features import METADATA_VERSION, VersionRange
from klamm.protocol.messages.feature_updates import UpgradeType
from klamm.protocol.metadata_levels import METADATA_LEVELS

group = Group(
    examples(
        "Show and change the feature levels of a cluster.",
        "klamm features describe",
        "klamm features upgrade kraft.version=1 --bootstrap-controller localhost:9093",
        "klamm features upgrade metadata.version=4.3 --dry-run",
        "klamm features downgrade group.version=0",
        "klamm features disable group.version",
    )
)

Levels = Annotated[
    list[str],
    Argument(
        metavar="NAME=LEVEL...",
        help="Feature levels, FEATURE=LEVEL; metadata.version also takes a release such as 4.3.",
    ),
]
Unsafe = Annotated[bool, Option("--unsafe", help="Allow it even if metadata is lost.")]
Names = Annotated[list[str], Argument(metavar="NAME...", help="Feature names.")]


@group.command("describe")
def describe(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Show the feature levels that the node supports and those of the cluster.

    \b
    [bold]Examples[/bold]
      klamm features describe
      klamm features describe --bootstrap-controller localhost:9093 --json
    """
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        features = feature_admin.describe(client)
    if as_json:
        print_json({one.name: {"supported": _ends(one.supported), "finalized": one.finalized} for one in features})
        return
    rows = [
        (one.name, *(_shown(one.name, level) for level in (*_ends(one.supported), one.finalized))) for one in features
    ]
    print_table(("FEATURE", "LOWEST", "HIGHEST", "FINALIZED"), rows)


@group.command("upgrade")
def upgrade(
    levels: Levels,
    *,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Raise feature levels: all that are given, or none.

    \b
    [bold]Examples[/bold]
      klamm features upgrade kraft.version=1
      klamm features upgrade metadata.version=4.3 group.version=1
    """
    wanted = _parsed(levels)
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        _update(client, "upgrade", wanted, UpgradeType.UPGRADE, dry_run=dry_run, as_json=as_json)


@group.command("downgrade")
def downgrade(
    levels: Levels,
    *,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Lower feature levels: all that are given, or none. kraft.version cannot be lowered.

    \b
    [bold]Examples[/bold]
      klamm features downgrade group.version=0
    """
    wanted = _parsed(levels)
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        _update(client, "downgrade", wanted, _DOWNGRADE[unsafe], dry_run=dry_run, as_json=as_json)


@group.command("disable")
def disable(
    names: Names,
    *,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Lower features to level 0.

    \b
    [bold]Examples[/bold]
      klamm features disable group.version
    """
    wanted = dict.fromkeys(names, 0)
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        _update(client, "disable", wanted, _DOWNGRADE[unsafe], dry_run=dry_run, as_json=as_json)


_DOWNGRADE: Final = {False: UpgradeType.SAFE_DOWNGRADE, True: UpgradeType.UNSAFE_DOWNGRADE}


def _update(
    client: QuorumClient, verb: str, levels: dict[str, int], how: UpgradeType, *, dry_run: bool, as_json: bool
) -> None:
    feature_admin.update(client, levels, how, dry_run=dry_run)
    named = ", ".join(f"{name} {_shown(name, level)}" for name, level in levels.items())
    print_change(verb, f"{verb}d", named, levels, dry_run=dry_run, as_json=as_json)


def _parsed(levels: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for text in levels:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise BadParameter(f"'{text}' is not NAME=LEVEL")
        wanted[name] = _level(name, level)
    return wanted


def _level(name: str, text: str) -> int:
    if text.isdecimal() and int(text) < 2**15:
        return int(text)
    if name != METADATA_VERSION:
        raise BadParameter(f"'{text}' is not a level of {name}")
    try:
        return level_of_release(text)
    except NodeConfigError:
        raise BadParameter(f"'{text}' is not a level of {name}, nor a release like 4.3 or 4.3-IV0") from None


def _ends(levels: VersionRange) -> list[int]:
    return [levels.min_version, levels.max_version]


def _shown(name: str, level: int) -> str:
    known = [one.name for one in METADATA_LEVELS if name == METADATA_VERSION and one.level == level]
    return f"{level} ({known[0]})" if known else str(level)
