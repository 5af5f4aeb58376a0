"""`klamm topics`."""

from __future__ import annotations

from typing import Annotated, Any

from klamm.admin import configs as config_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.admin.topics import Topic
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Elsewhere, Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.terminal.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    confirm,
    examples,
    print_deleted,
    print_json,
    print_table,
    say,
)
from klamm.client import ClientError

group = Group(
    examples(
        "List, create, describe, alter, reassign and delete topics.",
        "klamm topics create orders --partitions 12 --config retention.ms=3600000",
        "klamm topics list",
        "klamm topics describe orders --json",
        "klamm topics delete orders --yes",
    ),
    {
        "reassign": Elsewhere(
            "klamm.cli.admin.reassignment_commands:reassign",
            "Move the replicas of topics to other brokers, or change how many there are.",
        ),
        "reassignments": Elsewhere(
            "klamm.cli.admin.reassignment_commands:reassignments", "List the partitions that are being reassigned."
        ),
        "dirs": Elsewhere(
            "klamm.cli.admin.log_dir_commands:dirs",
            "Show in which log directories replicas are, how large they are, and which of them move.",
        ),
        "move-dir": Elsewhere(
            "klamm.cli.admin.log_dir_commands:move_dir",
            "Move replicas to another log directory of their broker, while clients use them.",
        ),
    },
)

Names = Annotated[list[str], Argument(metavar="NAME...", help="Topic names.")]


@group.command("list")
def list_topics(
    internal: Annotated[bool, Option("--internal", help="Include internal topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the topics of the cluster.

    \b
    [bold]Examples[/bold]
      klamm topics list
      klamm topics list --internal --json
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = [topic for topic in topic_admin.topics(client) if internal or not topic.is_internal]
    if as_json:
        print_json([_summary(topic) for topic in found])
    elif found:
        rows = ((topic.name, len(topic.partitions), topic.replication_factor, topic.topic_id) for topic in found)
        print_table(("TOPIC", "#PARTITIONS", "#REPLICAS", "ID"), rows)
    else:
        say("no topics yet: klamm topics create NAME makes one")


@group.command("create")
def create(
    names: Names,
    *,
    partitions: Annotated[
        int | None,
        Option("--partitions", "-p", min=1, help="The number of partitions; the broker's num.partitions by default."),
    ] = None,
    replicas: Annotated[
        int | None,
        Option(
            "--replicas",
            "-r",
            min=1,
            help="The replication factor; the broker's default.replication.factor by default.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        Option("--config", "-c", metavar="KEY=VALUE", help="A topic configuration, KEY=VALUE. May be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, Option("--if-not-exists", help="Skip topics that exist.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Let the broker validate the request without creating anything.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Create topics.

    \b
    [bold]Examples[/bold]
      klamm topics create orders
      klamm topics create orders payments -p 12
      klamm topics create prices -c cleanup.policy=compact -c min.insync.replicas=2
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        created = topic_admin.create(
            client,
            names,
            partitions=partitions or -1,
            replication_factor=replicas or -1,
            configs=_values(config or []),
            validate_only=dry_run,
            if_not_exists=if_not_exists,
        )
    if as_json:
        print_json({"created": [] if dry_run else created})
        return
    for name in created:
        say(f"{'could be created' if dry_run else 'created'}: {name}")


@group.command("describe")
def describe(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME...]", help="Topic names; all topics by default.")
    ] = None,
    under_replicated: Annotated[
        bool, Option("--under-replicated", help="Only partitions that have a replica which is not in sync.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of topics and the configs that were set on them.

    \b
    [bold]Examples[/bold]
      klamm topics describe orders
      klamm topics describe orders payments --json
      klamm topics describe --under-replicated
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        topics = topic_admin.topics(client, names or None)
        if under_replicated:
            topics = [topic for topic in map(Topic.under_replicated, topics) if topic.partitions]
        found = [(topic, _own_configs(client, topic.name)) for topic in topics]
    if as_json:
        print_json(
            [_summary(topic) | {"configs": configs, "partitions": _partitions(topic)} for topic, configs in found]
        )
        return
    if not found:
        say("all replicas are in sync" if under_replicated else "no topics yet: klamm topics create NAME makes one")
    for topic, configs in found:
        settings = " ".join(f"{key}={value}" for key, value in configs.items())
        rows = ((one.index, one.leader if one.leader >= 0 else None, one.replicas, one.isr) for one in topic.partitions)
        print_table(("#PARTITION", "LEADER", "REPLICAS", "IN SYNC"), rows, title=f"{topic.name}  {settings}".rstrip())


@group.command("alter")
def alter(
    name: Annotated[str, Argument(help="The topic name.")],
    partitions: Annotated[
        int, Option("--partitions", "-p", min=1, help="The new number of partitions, larger than the present one.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions. Configs are changed by [bold]klamm configs set[/bold].

    \b
    [bold]Examples[/bold]
      klamm topics alter orders --partitions 24
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        topic_admin.add_partitions(client, name, partitions)
    if as_json:
        print_json({"name": name, "partition_count": partitions})
    else:
        say(f"{name} has {partitions} partitions")


@group.command("delete")
def delete(
    names: Names,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics and their records.

    \b
    [bold]Examples[/bold]
      klamm topics delete orders
      klamm topics delete orders payments --yes
    """
    if not yes:
        confirm(f"Delete {', '.join(names)} with all records?")
    with Client(bootstrap, config=client_keys(command_config)) as client:
        topic_admin.delete(client, names)
    print_deleted(names, as_json=as_json)


def _values(pairs: list[str]) -> dict[str, str]:
    changes = config_admin.parse_changes(pairs)
    return {key: value for key, value in changes.items() if value is not None}


def _own_configs(client: Client, name: str) -> dict[str, str | None]:
    try:
        entries = config_admin.describe(client, "topic", name)
    except ClientError:
        # Describing configs may be denied although describing the topic is allowed.
        return {}
    return {entry.name: entry.value for entry in entries if entry.source == config_admin.SET_ON_TOPIC}


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _partitions(topic: Topic) -> list[dict[str, Any]]:
    return [
        {"partition": one.index, "leader": one.leader, "replicas": one.replicas, "isr": one.isr}
        for one in topic.partitions
    ]
