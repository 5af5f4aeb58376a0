"""The commands of `klamm`. Each is imported on first use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

from klamm.cli.framework.command_group import Elsewhere, Group
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
        "start": Elsewhere("klamm.cli.commands:start", "Run a node until Ctrl-C or SIGTERM."),
        "cluster": Elsewhere(
            "klamm.cli.cluster.cluster_commands:group",
            "Run a cluster on this machine, each node in a process of its own.",
        ),
        "topics": Elsewhere(
            "klamm.cli.admin.topic_commands:group", "List, create, describe, alter, reassign and delete topics."
        ),
        "produce": Elsewhere(
            "klamm.cli.records.produce:produce",
            "Write records to a topic; each is acknowledged before the command ends.",
        ),
        "consume": Elsewhere(
            "klamm.cli.records.consume:consume",
            "Print the records of a topic: the values, or with --json everything, one record a line.",
        ),
        "audit": Elsewhere(
            "klamm.cli.pipelines.audit:audit",
            "Audit a cluster's metadata log: what went wrong, by cause and time, and answers to questions.",
        ),
        "mirror": Elsewhere(
            "klamm.cli.pipelines.mirror:mirror", "Copy topics to another cluster continuously, until Ctrl-C."
        ),
        "groups": Elsewhere(
            "klamm.cli.admin.group_commands:group", "List, describe and delete groups, and move their offsets."
        ),
        "transactions": Elsewhere(
            "klamm.cli.admin.transaction_commands:group",
            "List and describe transactions, find those that hang, and abort them.",
        ),
        "configs": Elsewhere(
            "klamm.cli.admin.config_commands:group", "Describe, set and unset configs of topics, brokers and groups."
        ),
        "features": Elsewhere(
            "klamm.cli.admin.feature_commands:group", "Show and change the feature levels of a cluster."
        ),
        "metadata": Elsewhere(
            "klamm.cli.metadata.metadata_commands:group",
            "Show a cluster's metadata: what was written, its state at any moment, what changed, and why.",
        ),
        "quorum": Elsewhere(
            "klamm.cli.quorum.quorum_commands:group", "Show the metadata quorum, and change its voters."
        ),
        "storage": Elsewhere(
            "klamm.cli.node.storage_commands:group", "Format and examine the data directories of a node."
        ),
        "bench": Elsewhere("klamm.cli.pipelines.bench_commands:group", "Compare speeds on this machine."),
        "archive": Elsewhere(
            "klamm.cli.pipelines.archive:archive",
            "Archive topics as Parquet files, by topic and day; call it again to add new records.",
        ),
        "restore": Elsewhere(
            "klamm.cli.pipelines.restore:restore", "Restore archived topics, to the same cluster or another."
        ),
    },
)


def start(
    *,
    file: Annotated[
        Path | None, Argument(metavar="[SERVER.PROPERTIES]", help="The configuration: Apache Kafka's keys and rules.")
    ] = None,
    override: Annotated[
        list[str] | None,
        Option("--override", "-o", metavar="KEY=VALUE", help="Set a configuration key. May be repeated."),
    ] = None,
    data: Annotated[Path | None, Option(metavar="DIR", help="The data directory; ./klamm-data by default.")] = None,
    port: Annotated[
        int | None, Option(help="The client port of a node without a configuration file; 9092 by default.")
    ] = None,
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    Without a configuration file it runs one node that listens on localhost
    and formats its data directory itself. Environment variables named KAFKA_*
    are read as in Apache Kafka's image.

    \b
    [bold]Examples[/bold]
      klamm start
      klamm start --port 19092 --data /tmp/klamm
      klamm start server.properties --override log.retention.hours=24
    """
    from klamm.cli.node.start import StartOptions, start_with

    sys.exit(start_with(StartOptions(file, override or [], data, port)))
