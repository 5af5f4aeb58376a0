"""The commands of `klamm`, each imported when it is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option

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
        "topics": "klamm.cli.admin.topic_commands:group",
        "produce": "klamm.cli.records.produce:produce",
        "consume": "klamm.cli.records.consume:consume",
        "audit": "klamm.cli.pipelines.audit:audit",
        "mirror": "klamm.cli.pipelines.mirror:mirror",
        "groups": "klamm.cli.admin.group_commands:group",
        "configs": "klamm.cli.admin.config_commands:group",
        "features": "klamm.cli.admin.feature_commands:group",
        "metadata": "klamm.cli.metadata.metadata_commands:group",
        "quorum": "klamm.cli.quorum.quorum_commands:group",
        "storage": "klamm.cli.node.storage_commands:group",
        "bench": "klamm.cli.pipelines.bench_commands:group",
        "archive": "klamm.cli.pipelines.archive:archive",
        "restore": "klamm.cli.pipelines.restore:restore",
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
    from klamm.cli.node.start import StartOptions, start_with

    sys.exit(start_with(StartOptions(file, override or [], data, port)))
