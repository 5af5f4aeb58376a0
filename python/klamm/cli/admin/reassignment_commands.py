"""`klamm topics reassign` and `klamm topics reassignments`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from klamm.admin import reassignments as admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.admin.reassignments import Reassignment
from klamm.admin.topics import Topic
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, print_json, print_table, say
from klamm.client import ClientError
from klamm.protocol.topic_partition import TopicPartition

LOOK_S: Final = 0.2

Names = Annotated[list[str], Argument(metavar="NAME...", help="Topic names.")]
OptionalNames = Annotated[list[str] | None, Argument(metavar="[NAME...]", help="Topic names; all topics by default.")]
Current = Mapping[TopicPartition, tuple[int, ...]]
Wanted = Mapping[TopicPartition, tuple[int, ...] | None]


def reassign(
    names: Names,
    *,
    partition: Annotated[
        list[int] | None, Option("--partition", "-P", min=0, help="Limit it to this partition. May be repeated.")
    ] = None,
    to: Annotated[
        str | None,
        Option(
            "--to",
            metavar="IDS",
            help="The brokers of each partition, such as 1,2,3; the first is the preferred leader.",
        ),
    ] = None,
    replicas: Annotated[
        int | None, Option("--replicas", "-r", min=1, help="The new replication factor; unchanged by default.")
    ] = None,
    brokers: Annotated[
        str | None,
        Option("--brokers", metavar="IDS", help="The brokers to place replicas on; all running brokers by default."),
    ] = None,
    cancel: Annotated[
        bool, Option("--cancel", help="Cancel a running reassignment: return to the replicas before it.")
    ] = False,
    wait: Annotated[bool, Option("--wait", help="Wait until the new replicas are in sync.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would change without changing anything.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Move the replicas of topics to other brokers, or change how many there are.

    Without --to, replicas are spread evenly over brokers and racks, and as few as possible are moved.

    \b
    [bold]Examples[/bold]
      klamm topics reassign orders --replicas 3 --wait
      klamm topics reassign orders --brokers 1,2,4 --dry-run
      klamm topics reassign orders --partition 0 --to 4,1,2
      klamm topics reassign orders --cancel
    """
    if sum((to is not None, replicas is not None or brokers is not None, cancel)) > 1:
        raise ClientError("--to, --replicas with --brokers, and --cancel exclude each other")
    with Client(bootstrap, config=client_keys(command_config)) as client:
        topics = topic_admin.topics(client, names)
        current = _current(topics, partition)
        running = {TopicPartition(one.topic, one.partition): one for one in admin.ongoing(client, topics)}
        wanted: Wanted
        if cancel:
            wanted = {place: None for place in current if place in running}
        elif to is not None:
            target = _ids(to)
            wanted = {place: target for place, found in current.items() if place in running or found != target}
        else:
            wanted = admin.planned(_settled(current, running), _brokers(client, brokers), replicas)
        if wanted and not dry_run:
            may_change_factor = to is not None or replicas is not None
            admin.reassign(client, wanted, may_change_factor=may_change_factor)
            if wait:
                _wait(client, topics, wanted)
    _show(current, wanted, as_json=as_json, dry_run=dry_run)


def reassignments(
    names: OptionalNames = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the partitions that are being reassigned.

    \b
    [bold]Examples[/bold]
      klamm topics reassignments
      klamm topics reassignments orders --json
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = admin.ongoing(client, topic_admin.topics(client, names) if names else None)
    if as_json:
        print_json(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "replicas": one.replicas,
                    "adding": one.adding,
                    "removing": one.removing,
                }
                for one in found
            ]
        )
    elif found:
        rows = ((one.topic, one.partition, one.replicas, one.adding, one.removing) for one in found)
        print_table(("TOPIC", "#PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows)
    else:
        say("no partition is being reassigned")


def _current(topics: Sequence[Topic], indexes: Sequence[int] | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of the partitions to reassign."""
    found = {
        TopicPartition(topic.name, one.index): one.replicas
        for topic in topics
        for one in topic.partitions
        if indexes is None or one.index in indexes
    }
    for topic in topics:
        for index in indexes or ():
            if TopicPartition(topic.name, index) not in found:
                raise ClientError(f"topic {topic.name} has no partition {index}")
    return found


def _settled(current: Current, running: Mapping[TopicPartition, Reassignment]) -> Current:
    """The replicas at the end of the reassignments that run."""
    removing = {place: one.removing for place, one in running.items()}
    return {
        place: tuple(each for each in replicas if each not in removing.get(place, ()))
        for place, replicas in current.items()
    }


def _brokers(client: Client, ids: str | None) -> dict[int, str | None]:
    """The brokers to place replicas on, with their racks."""
    known = admin.racks(client)
    if ids is None:
        return known
    unknown = [each for each in _ids(ids) if each not in known]
    if unknown:
        raise ClientError(f"not running: broker {', '.join(map(str, unknown))}")
    return {each: known[each] for each in _ids(ids)}


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise ClientError(f"{text!r} is not a list of brokers such as 1,2,3") from None


def _wait(client: Client, topics: Sequence[Topic], wanted: Wanted) -> None:
    while any(TopicPartition(one.topic, one.partition) in wanted for one in admin.ongoing(client, topics)):
        time.sleep(LOOK_S)


def _show(current: Current, wanted: Wanted, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json(
            [
                {"topic": place.topic, "partition": place.partition, "from": current[place], "to": target}
                for place, target in wanted.items()
            ]
        )
    elif not wanted:
        say("nothing to change")
    else:
        rows = (
            (place.topic, place.partition, current[place], "cancelled" if target is None else target)
            for place, target in wanted.items()
        )
        print_table(("TOPIC", "#PARTITION", "FROM", "WOULD BE" if dry_run else "TO"), rows)
