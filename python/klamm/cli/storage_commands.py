"""`klamm storage`: what `kafka-storage` does, with its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm._engine import StorageError
from klamm.cli.connection import ClientError
from klamm.cli.output import AsJson, examples, print_json
from klamm.node import meta_properties, sources, storage
from klamm.node.config import NodeConfig, NodeConfigError
from klamm.node.meta_properties import uuid_text
from klamm.node.rules import checked
from klamm.node.scram_credentials import ScramError

app = typer.Typer(
    no_args_is_help=True,
    help=examples(
        "Format the data directories of a node, and look at them.",
        "klamm storage format -c server.properties -t $(klamm storage random-uuid)",
        "klamm storage info -c server.properties",
    ),
)

ConfigFile = Annotated[
    Path, typer.Option("--config", "-c", metavar="SERVER.PROPERTIES", help="The node's configuration.")
]


@app.command("format")
def format_directories(
    *,
    config: ConfigFile,
    cluster_id: Annotated[str, typer.Option("--cluster-id", "-t", help="The cluster's id, the same on every node.")],
    release_version: Annotated[
        str | None, typer.Option("--release-version", "-r", help="The release of Apache Kafka whose metadata to write.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="A feature's level. May be repeated."),
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Skip directories that are formatted.")
    ] = False,
    add_scram: Annotated[
        list[str] | None, typer.Option("--add-scram", "-S", metavar="CREDENTIAL", help="A user. May be repeated.")
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This controller is the first voter of a dynamic quorum.")
    ] = False,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="Join a dynamic quorum later.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option("--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY,...", help="The first voters."),
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
        raise typer.BadParameter("give one of --standalone, --no-initial-controllers, --initial-controllers")
    try:
        request = storage.FormatRequest(
            cluster_id=cluster_id,
            release_version=release_version,
            features=dict(map(storage.parse_feature, feature or [])),
            ignore_formatted=ignore_formatted,
            scram=add_scram or [],
            standalone=standalone,
            initial_controllers=storage.parse_controllers(initial_controllers) if initial_controllers else (),
            no_initial_controllers=no_initial_controllers,
        )
        storage.format_storage(_load(config), request, print)
    except (NodeConfigError, StorageError, ScramError) as error:
        raise ClientError(str(error)) from None


@app.command()
def info(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show what the directories of a node hold, and what is wrong with them. Exits with 1 when something is.

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
        raise typer.Exit(1)


@app.command("random-uuid")
def random_uuid() -> None:
    """Print a new id, for a cluster or a directory.

    \b
    [bold]Examples[/bold]
      klamm storage random-uuid
    """
    print(storage.random_cluster_id())


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
