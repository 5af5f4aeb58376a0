"""The commands of `klamm`, each imported when it is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

from klamm.cli.command_group import Group
from klamm.cli.options import Argument, Option

HELP: Final = """A Kafka-compatible log in a Python package: run a node, and work with any Kafka cluster.

\b
[bold]Examples[/bold]
  klamm start
  klamm topics create greetings --partitions 3
  klamm produce greetings hello world
  klamm consume greetings
"""

commands: Final = Group(
    HELP,
    {
        "start": "klamm.cli.commands:start",
        "topics": "klamm.cli.topic_commands:group",
        "produce": "klamm.cli.produce:produce",
        "consume": "klamm.cli.consume:consume",
        "audit": "klamm.cli.audit:audit",
        "mirror": "klamm.cli.mirror:mirror",
        "groups": "klamm.cli.group_commands:group",
        "configs": "klamm.cli.config_commands:group",
        "features": "klamm.cli.feature_commands:group",
        "metadata": "klamm.cli.metadata_commands:group",
        "quorum": "klamm.cli.quorum_commands:group",
        "storage": "klamm.cli.storage_commands:group",
        "bench": "klamm.cli.bench_commands:group",
        "archive": "klamm.cli.archive:archive",
        "restore": "klamm.cli.restore:restore",
    },
)


def start(
    *,
    file: Annotated[
        Path | None, Argument(metavar="[SERVER.PROPERTIES]", help="Apache Kafka's own keys and rules.")
    ] = None,
    override: Annotated[
        list[str] | None, Option("--override", "-o", metavar="KEY=VALUE", help="Set a key. May be repeated.")
    ] = None,
    data: Annotated[Path | None, Option(metavar="DIR", help="The data folder, ./klamm-data without a file.")] = None,
    port: Annotated[int | None, Option(help="The port of a node without a file, 9092.")] = None,
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    Without a file: one node for this machine alone, which formats its folder
    by itself. Variables named KAFKA_* are read as in Apache Kafka's image.

    \b
    [bold]Examples[/bold]
      klamm start
      klamm start --port 19092 --data /tmp/klamm
      klamm start server.properties --override log.retention.hours=24
    """
    from klamm.cli.start import StartOptions, start_with

    sys.exit(start_with(StartOptions(file, override or [], data, port)))
