"""`klamm storage`, like `kafka-storage` and with its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from klamm._engine.quorum import StorageError
from klamm.cli.framework.command_group import Elsewhere, Group
from klamm.cli.framework.options import Option
from klamm.cli.terminal.exits import BadParameter, Exit
from klamm.cli.terminal.output import AsJson, examples, print_json
from klamm.client import ClientError
from klamm.config import sources
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.config.rules import checked
from klamm.formats import meta_properties, release_features, storage
from klamm.formats.scram_credentials import ScramError
from klamm.protocol.features import METADATA_VERSION
from klamm.protocol.uuids import uuid_text

group = Group(
    examples(
        "Format and examine the data directories of a node.",
        "klamm storage format -c server.properties -t $(klamm storage random-uuid)",
        "klamm storage info -c server.properties",
        "klamm storage check server.properties --deep",
        "klamm storage version-mapping -r 4.1",
    ),
    {
        "check": Elsewhere(
            "klamm.cli.node.storage_check:check",
            "Say what is intact, damaged or missing in the files of a stopped node, and what a start does about it.",
        )
    },
)

ConfigFile = Annotated[
    Path, Option("--config", "-c", metavar="SERVER.PROPERTIES", help="The configuration file of the node.")
]


@group.command("format")
def format_directories(
    *,
    config: ConfigFile,
    cluster_id: Annotated[str, Option("--cluster-id", "-t", help="The cluster id, the same on every node.")],
    release_version: Annotated[
        str | None,
        Option("--release-version", "-r", help="The release of Apache Kafka whose metadata version is used."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        Option("--feature", "-f", metavar="NAME=LEVEL", help="A feature level, FEATURE=LEVEL. May be repeated."),
    ] = None,
    ignore_formatted: Annotated[
        bool, Option("--ignore-formatted", "-g", help="Skip directories that are already formatted.")
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        Option("--add-scram", "-S", metavar="CREDENTIAL", help="SCRAM credentials of a user. May be repeated."),
    ] = None,
    standalone: Annotated[
        bool, Option("--standalone", "-s", help="Format this controller as the only voter of a new dynamic quorum.")
    ] = False,
    no_initial_controllers: Annotated[
        bool,
        Option(
            "--no-initial-controllers",
            "-N",
            help="Format without voters: this controller joins a dynamic quorum later.",
        ),
    ] = False,
    initial_controllers: Annotated[
        str | None,
        Option(
            "--initial-controllers",
            "-I",
            metavar="ID@HOST:PORT:DIRECTORY,...",
            help="The initial voters of a dynamic quorum.",
        ),
    ] = None,
) -> None:
    """Format the directories of a node. `klamm start` without a file does it by itself.

    \b
    [bold]Examples[/bold]
      klamm storage format -c server.properties -t $(klamm storage random-uuid)
      klamm storage format -c server.properties -t $ID --standalone
      klamm storage format -c server.properties -t $ID -f group.version=1
      klamm storage format -c server.properties -t $ID -S 'SCRAM-SHA-256=[name=alice,password=secret]'
    """
    if sum((standalone, no_initial_controllers, initial_controllers is not None)) > 1:
        raise BadParameter("give one of --standalone, --no-initial-controllers, --initial-controllers")
    try:
        request = storage.FormatRequest(
            cluster_id=cluster_id,
            release_version=release_version,
            features=dict(map(storage.parse_feature, feature or [])),
            ignore_formatted=ignore_formatted,
            scram=add_scram or [],
            standalone=standalone,
            initial_controllers=() if initial_controllers is None else storage.parse_controllers(initial_controllers),
            no_initial_controllers=no_initial_controllers,
        )
        storage.format_storage(_load(config), request, print)
    except (NodeConfigError, StorageError, ScramError) as error:
        raise ClientError(str(error)) from None


@group.command("info")
def info(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show the content of a node's directories, and the problems with them. Exits with 1 if there are any.

    \b
    [bold]Examples[/bold]
      klamm storage info -c server.properties
    """
    try:
        loaded = _load(config)
        ensemble = meta_properties.load(loaded.all_dirs)
    except (NodeConfigError, StorageError) as error:
        raise ClientError(str(error)) from None
    problems = [f"{directory} is not formatted" for directory in ensemble.empty]
    problems += [f"{directory}: {reason}" for directory, reason in ensemble.failed.items()]
    try:
        meta_properties.verify(ensemble, loaded.node_id)
    except StorageError as error:
        problems.append(str(error))
    found = {str(directory): _described(meta) for directory, meta in sorted(ensemble.formatted.items())}
    if as_json:
        print_json({"directories": found, "problems": problems})
    else:
        _print_info(found, problems)
    if problems:
        raise Exit(1)


@group.command("version-mapping")
def version_mapping(
    release_version: Annotated[
        str | None, Option("--release-version", "-r", help="A release or metadata version; the latest by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the feature levels that Apache Kafka sets for a release.

    `klamm storage format` leaves a feature at 0 while klamm does not support its APIs.

    \b
    [bold]Examples[/bold]
      klamm storage version-mapping
      klamm storage version-mapping -r 4.1
      klamm storage version-mapping -r 3.9-IV0 --json
    """
    try:
        levels = release_features.levels_of(release_version)
    except NodeConfigError as error:
        raise ClientError(str(error)) from None
    if as_json:
        print_json(levels)
        return
    shown = release_version or storage.level_name(levels[METADATA_VERSION])
    for name, level in levels.items():
        print(f"{name}={level}" + (f" ({shown})" if name == METADATA_VERSION else ""))


@group.command("feature-dependencies")
def feature_dependencies(
    feature: Annotated[
        list[str],
        Option("--feature", "-f", metavar="NAME=LEVEL", help="A feature level, FEATURE=LEVEL. May be repeated."),
    ],
    as_json: AsJson = False,
) -> None:
    """Show which levels of other features a feature's level needs.

    \b
    [bold]Examples[/bold]
      klamm storage feature-dependencies -f eligible.leader.replicas.version=1
      klamm storage feature-dependencies -f group.version=1 -f metadata.version=30
    """
    try:
        wanted = [storage.parse_feature(text) for text in feature]
        found = [(name, level, release_features.needs_of(name, level)) for name, level in wanted]
    except NodeConfigError as error:
        raise ClientError(str(error)) from None
    if as_json:
        print_json([{"name": name, "level": level, "needs": needs} for name, level, needs in found])
        return
    for name, level, needs in found:
        if not needs:
            print(f"{_leveled(name, level)} has no dependencies.")
            continue
        print(f"{_leveled(name, level)} requires:")
        for other, least in needs.items():
            print(f"    {_leveled(other, least)}")


@group.command("random-uuid")
def random_uuid() -> None:
    """Print a new random id for a cluster or a directory.

    \b
    [bold]Examples[/bold]
      klamm storage random-uuid
    """
    print(storage.random_cluster_id())


def _leveled(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({storage.level_name(level)})" if name == METADATA_VERSION else "")


def _load(file: Path) -> NodeConfig:
    return checked(sources.read_file(file))


def _described(meta: meta_properties.MetaProperties) -> dict[str, str]:
    described = {"cluster.id": meta.cluster_id, "node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        described["directory.id"] = uuid_text(meta.directory_id)
    return described


def _print_info(found: dict[str, dict[str, str]], problems: list[str]) -> None:
    for directory, described in found.items():
        print(f"{directory}: " + ", ".join(f"{key}={value}" for key, value in described.items()))
    for problem in problems:
        print(f"problem: {problem}")
