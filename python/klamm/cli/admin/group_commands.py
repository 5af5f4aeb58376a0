"""`klamm groups`."""

from __future__ import annotations

from typing import Annotated, Any

from klamm.admin import groups as group_admin
from klamm.admin.client import Client
from klamm.admin.membership import membership
from klamm.admin.topics import topics
from klamm.cli.admin.group_members import follow_members, membership_as_json, print_members, summary
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.records.positions import parse_position
from klamm.cli.terminal.interrupts import ends_on_signals
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
from klamm.protocol.membership import DEAD, SHARE
from klamm.protocol.topic_partition import TopicPartition

group = Group(
    examples(
        "List, describe and delete groups, and move their offsets.",
        "klamm groups list",
        "klamm groups describe billing",
        "klamm groups members billing --follow",
        "klamm groups reset-offsets billing --topic orders --to beginning --execute",
    )
)

GroupName = Annotated[str, Argument(metavar="GROUP", help="The group.")]


@group.command("list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """List the groups of the cluster.

    \b
    [bold]Examples[/bold]
      klamm groups list
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = group_admin.groups(client)
    if as_json:
        print_json(
            [
                {"name": one.name, "type": one.kind, "state": one.state, "protocol_type": one.protocol_type}
                for one in found
            ]
        )
    elif found:
        rows = ((one.name, one.kind, one.state, one.protocol_type) for one in found)
        print_table(("GROUP", "TYPE", "STATE", "PROTOCOL"), rows)
    else:
        say("no groups yet")


@group.command("describe")
def describe(
    group: GroupName,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's members, and its lag in each partition.

    \b
    [bold]Examples[/bold]
      klamm groups describe billing
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = group_admin.describe(client, group)
    if as_json:
        print_json(membership_as_json(found) | {"offsets": [_offset_as_json(one) for one in found.positions]})
        return
    say(summary(found))
    print_members(found)
    if found.positions:
        readers = {partition: one.member_id for one in found.members for partition in one.assigned}
        positions = (
            (
                one.topic,
                one.partition,
                one.committed if one.committed >= 0 else None,
                one.log_end,
                one.lag,
                readers.get(TopicPartition(one.topic, one.partition)),
            )
            for one in found.positions
        )
        print_table(("TOPIC", "#PARTITION", "#COMMITTED", "#LOG END", "#LAG", "MEMBER"), positions)


@group.command("members")
def members(
    group: GroupName,
    *,
    follow: Annotated[bool, Option("--follow", "-f", help="Print each change of the group, until Ctrl-C.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the members of a group: what they read, and what they will read.

    With --follow it asks every second, and prints which members join and
    leave, and how partitions move. With --json it prints the group after each
    change, one object a line.

    \b
    [bold]Examples[/bold]
      klamm groups members billing
      klamm groups members billing --follow
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = membership(client, group)
        if follow:
            with ends_on_signals():
                follow_members(client, found, as_json=as_json)
            return
    if found.state == DEAD:
        raise ClientError(f"group {group}: there is no such group; `klamm groups list` shows what there is")
    if as_json:
        print_json(membership_as_json(found))
        return
    say(summary(found))
    print_members(found)


@group.command("delete")
def delete(
    groups: Annotated[list[str], Argument(metavar="GROUP...", help="Groups, which must have no members.")],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups and their committed offsets.

    \b
    [bold]Examples[/bold]
      klamm groups delete billing
    """
    if not yes:
        confirm(f"Delete {', '.join(groups)} with all committed offsets?")
    with Client(bootstrap, config=client_keys(command_config)) as client:
        group_admin.delete(client, groups)
    print_deleted(groups, as_json=as_json)


@group.command("reset-offsets")
def reset_offsets(
    group: GroupName,
    *,
    to: Annotated[
        str,
        Option(
            "--to", metavar="POSITION", help="The new position: beginning, end, an offset, +N, -N, or an ISO 8601 time."
        ),
    ],
    topic: Annotated[
        list[str] | None,
        Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION,...]",
            help="A topic, or a topic's partitions such as orders:0,3. May be repeated.",
        ),
    ] = None,
    execute: Annotated[
        bool, Option("--execute", "-x", help="Commit the new offsets. Without it only the plan is shown.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Move the offsets of a group without members. Shows the plan only, unless --execute is given.

    \b
    [bold]Examples[/bold]
      klamm groups reset-offsets billing --to beginning
      klamm groups reset-offsets billing --to 2026-01-31T12:00 -t orders -x
      klamm groups reset-offsets billing --to -100 -t orders:0,3 -x
    """
    position = parse_position(to)
    with Client(bootstrap, config=client_keys(command_config)) as client:
        is_share = membership(client, group).kind == SHARE
        read = group_admin.start_offsets if is_share else group_admin.committed_offsets
        committed = read(client, group)
        where = _partitions(client, topic) if topic else sorted(committed)
        if not where:
            raise ClientError(f"group {group} has committed nothing: name topics with --topic")
        planned = position.resolve(client, where, committed)
        if execute:
            change = group_admin.alter_start_offsets if is_share else group_admin.commit
            change(client, group, planned)
    if as_json:
        print_json([{"topic": one[0], "partition": one[1], "offset": offset} for one, offset in planned.items()])
        return
    rows = ((*one, committed.get(one), offset) for one, offset in planned.items())
    print_table(("TOPIC", "#PARTITION", "#COMMITTED", "#NEW"), rows)
    if not execute:
        say("nothing is changed yet: add --execute")


def _partitions(client: Client, wanted: list[str]) -> list[TopicPartition]:
    """The partitions of `topic` or `topic:0,3`. Raises ClientError."""
    found: list[TopicPartition] = []
    for text in wanted:
        name, _, numbers = text.partition(":")
        (topic,) = topics(client, [name])
        known = [one.index for one in topic.partitions]
        chosen = [int(number) for number in numbers.split(",") if number.isdecimal()] if numbers else known
        missing = sorted(set(chosen) - set(known))
        if missing or not chosen:
            raise ClientError(f"--topic {text}: {name} has the partitions 0 to {len(known) - 1}")
        found += [TopicPartition(name, index) for index in chosen]
    return found


def _offset_as_json(position: group_admin.Position) -> dict[str, Any]:
    return {
        "topic": position.topic,
        "partition": position.partition,
        "committed": position.committed,
        "log_end": position.log_end,
        "lag": position.lag,
    }
