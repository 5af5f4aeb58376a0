"""`klamm metadata`: shows the content and history of a metadata log."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from klamm.admin.metadata_mirror import Mirror
from klamm.admin.quorum import find_controllers
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.metadata.metadata_tail import FollowedLog, Tail
from klamm.cli.quorum.quorum_options import BootstrapServer
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, examples, print_json, print_table, say
from klamm.client import ClientError
from klamm.config.sources import DEFAULT_DATA
from klamm.metadata.diff import changes_between
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import type_names
from klamm.metadata.log.history import History, State
from klamm.metadata.log.moments import iso_text, time_text
from klamm.metadata.partitions.partition_history import parse_partition, partition_history
from klamm.metadata.rendering.descriptions import leader_text, voters_text
from klamm.metadata.state import (
    broker_state,
    brokers_of,
    configs_of,
    controllers_of,
    endpoints_of,
    quorum_fields,
    state_fields,
)

group = Group(
    examples(
        "Show a cluster's metadata: what was written, its state at any moment, what changed, and why.\n\n"
        "Reads a node's files, klamm's or Apache Kafka's, while it runs or not, and changes nothing. "
        "Without --data and ./klamm-data it asks the node on localhost.",
        "klamm metadata tail --follow",
        "klamm metadata at 2026-01-31T12:00 --data server.properties",
        "klamm metadata diff 1h end",
        "klamm metadata why orders-0",
    )
)

NOTHING_HAPPENS: Final = "NoOp"
POLL_S: Final = 0.1
Where = Annotated[
    Path,
    Option(
        "--data",
        "-d",
        envvar="KLAMM_DATA",
        metavar="PATH",
        help="A node's log directory, its server.properties, or a snapshot (.checkpoint).",
        panel="Where and how",
    ),
]
Data = Annotated[
    Path | None,
    Option(
        "--data",
        "-d",
        envvar="KLAMM_DATA",
        metavar="PATH",
        help="A node's log directory, its server.properties, or a snapshot (.checkpoint); ./klamm-data if it exists.",
        panel="Where and how",
    ),
]
Controller = Annotated[
    str | None,
    Option(
        "--bootstrap-controller",
        "-C",
        metavar="HOST:PORT,...",
        help="Controllers of a running cluster, whose log is fetched from the latest snapshot on, instead of --data.",
        panel="Where and how",
    ),
]
MOMENT_HELP: Final = "An offset, end, end-10, 15m (ago), or a time such as 2026-01-31T12:00."


@group.command("tail")
def tail(
    *,
    count: Annotated[int, Option("--count", "-n", min=0, help="The number of records from the end.")] = 20,
    start: Annotated[str | None, Option("--from", metavar="MOMENT", help=MOMENT_HELP)] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Wait for new records at the end, until Ctrl-C.")] = False,
    types: Annotated[
        list[str] | None,
        Option(
            "--type", "-t", metavar="TYPE", help="Only records of this type: Topic, PartitionChange, LeaderChange ..."
        ),
    ] = None,
    every: Annotated[bool, Option("--all", "-a", help="Include records that change nothing (NoOp).")] = False,
    data: Data = None,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: Controller = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of the metadata log in plain words; --json prints them with all fields, one a line.

    \b
    [bold]Examples[/bold]
      klamm metadata tail
      klamm metadata tail --follow --data server.properties
      klamm metadata tail --follow --bootstrap-controller localhost:9093
      klamm metadata tail --from 2026-01-31T12:00 --type PartitionChange
      klamm metadata tail --from 0 --json
    """
    with _opened(data, bootstrap_server, bootstrap_controller, command_config) as (history, update):
        wanted = _wanted_types(types, every=every)
        chosen = Tail(history, wanted)
        records = chosen.last(count) if start is None else chosen.since(start)
        if as_json:
            for record in records:
                print(json.dumps(record.fields(), ensure_ascii=False))
        elif not follow:
            rows = [(one.offset, one.epoch, time_text(one.timestamp_ms), one.type, one.text) for one in records]
            print_table(("#OFFSET", "#EPOCH", "TIME", "TYPE", "WHAT"), rows)
        else:
            for record in records:
                print(record.line())
        if torn := chosen.torn():
            say(f"after the last complete record: {torn}")
        if follow:
            _follow(FollowedLog(chosen), update, as_json=as_json)


@group.command("at")
def at(
    moment: Annotated[str, Argument(metavar="OFFSET-or-TIME", help=MOMENT_HELP)] = "end",
    topic: Annotated[list[str] | None, Option("--topic", help="Limit it to this topic. May be repeated.")] = None,
    *,
    data: Data = None,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: Controller = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what held at a moment: quorum, features, brokers, topics, partitions and configs.

    \b
    [bold]Examples[/bold]
      klamm metadata at end
      klamm metadata at 1042 --topic orders
      klamm metadata at 2026-01-31T12:00 --json
      klamm metadata at end --data __cluster_metadata-0/00000000000000000179-0000000002.checkpoint
    """
    with _opened(data, bootstrap_server, bootstrap_controller, command_config) as (history, _):
        state = history.state_at(moment)
        if as_json:
            print_json(state_fields(state, topic))
        else:
            _print_state(state, topic)


@group.command("diff")
def diff(
    older: Annotated[str, Argument(metavar="A", help=MOMENT_HELP)],
    newer: Annotated[str, Argument(metavar="B", help="The second moment, in the same form.")] = "end",
    *,
    data: Data = None,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: Controller = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what is different at moment B from what was at moment A.

    \b
    [bold]Examples[/bold]
      klamm metadata diff 1h end
      klamm metadata diff 1000 1042 --json
      klamm metadata diff 2026-01-31T12:00 2026-01-31T13:00
    """
    with _opened(data, bootstrap_server, bootstrap_controller, command_config) as (history, _):
        states = [history.state_at(moment) for moment in (older, newer)]
        changes = changes_between(*states)
    if as_json:
        print_json({"from": states[0].offset, "to": states[1].offset, "changes": [one._asdict() for one in changes]})
        return
    say(f"from {_when(states[0])} to {_when(states[1])}")
    if changes:
        print_table(("KIND", "NAME", "WHAT"), changes)
    else:
        say("nothing is different")


@group.command("why")
def why(
    partition: Annotated[str, Argument(metavar="TOPIC-PARTITION", help="The partition, such as orders-0.")],
    until: Annotated[str, Option(metavar="MOMENT", help=MOMENT_HELP)] = "end",
    *,
    data: Data = None,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: Controller = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Print the history of one partition: each change of leader, ISR and replicas with its cause, and its state.

    \b
    [bold]Examples[/bold]
      klamm metadata why orders-0
      klamm metadata why orders-0 --data server.properties
      klamm metadata why __consumer_offsets-7 --until 15m --json
    """
    with _opened(data, bootstrap_server, bootstrap_controller, command_config) as (history, _):
        found = partition_history(history, *parse_partition(partition), until)
    if as_json:
        changes = [{**change._asdict(), "time": iso_text(change.timestamp_ms)} for change in found.changes]
        print_json({**found._asdict(), "changes": changes})
        return
    rows = ((row.offset, row.epoch, time_text(row.timestamp_ms), row.change, row.cause) for row in found.changes)
    print_table(("#OFFSET", "#EPOCH", "TIME", "CHANGE", "CAUSE"), rows)
    print(f"\n{partition}: {found.state}")
    for line in found.advice:
        print(f"  - {line}")


@contextlib.contextmanager
def _opened(
    data: Path | None, bootstrap_server: str | None, bootstrap_controller: str | None, command_config: Path | None
) -> Iterator[tuple[History, Callable[[], None]]]:
    """The history, and the function that updates it. Errors of the history become ClientError.

    Without arguments it uses ./klamm-data, which has a local node's whole history, otherwise the node on localhost.
    """
    if data is None and bootstrap_server is None and DEFAULT_DATA.exists():
        data = DEFAULT_DATA
    try:
        if data is not None and bootstrap_controller is None:
            yield History(data), lambda: None
            return
        keys = client_keys(command_config)
        with Mirror(bootstrap_controller or _controllers(bootstrap_server, keys), keys) as mirror:
            mirror.update()
            yield History(mirror.directory), mirror.update
    except HistoryError as error:
        raise ClientError(str(error)) from None


def _controllers(server: str | None, keys: dict[str, str]) -> str:
    """The addresses of the controllers of a broker's cluster. Raises ClientError."""
    way_out = "Name a node's files with --data, or --bootstrap-controller host:port"
    found = find_controllers(server or DEFAULT_BOOTSTRAP, keys, way_out)
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found)


def _wanted_types(types: list[str] | None, *, every: bool) -> frozenset[str] | None:
    """The types to print; None for all."""
    known = type_names()
    by_lower = {name.lower(): name for name in known}
    for name in types or ():
        if name.lower().removesuffix("record") not in by_lower:
            raise ClientError(f"there is no record type {name}: use one of {', '.join(known)}")
    if types:
        return frozenset(by_lower[name.lower().removesuffix("record")] for name in types)
    return None if every else frozenset(known) - {NOTHING_HAPPENS}


def _follow(followed: FollowedLog, update: Callable[[], None], *, as_json: bool) -> None:
    while True:
        update()
        for record in followed.more():
            print(json.dumps(record.fields(), ensure_ascii=False) if as_json else record.line())
        for note in followed.notes():
            say(note)
        sys.stdout.flush()
        time.sleep(POLL_S)


def _when(state: State) -> str:
    return f"offset {state.offset} ({time_text(state.timestamp_ms)})"


def _print_state(state: State, topics: list[str] | None) -> None:
    image = state.image.stable
    print(f"as of offset {state.offset}, epoch {state.epoch}, {time_text(state.timestamp_ms)}")
    if state.image.in_transaction:
        print("inside of a metadata transaction, which does not count yet")
    quorum = quorum_fields(state)
    leader = "unknown" if quorum["leader_id"] is None else f"{quorum['leader_id']} in epoch {quorum['leader_epoch']}"
    voters = voters_text(state.quorum.voters)
    print(f"quorum: leader {leader}, voters {voters}, kraft.version {state.quorum.kraft_version}")
    print(f"features: {', '.join(f'{name}={level}' for name, level in sorted(image.features().items())) or 'none'}")
    nodes: list[tuple[Any, ...]] = [
        ("controller", one.id, "", None, ", ".join(endpoints_of(one))) for one in controllers_of(image)
    ]
    nodes += [
        ("broker", one.id, broker_state(one), one.rack, ", ".join(endpoints_of(one))) for one in brokers_of(image)
    ]
    _print_section(("NODE", "#ID", "STATE", "RACK", "ENDPOINTS"), nodes)
    rows = [
        (name, one.index, leader_text(one.leader), one.leader_epoch, one.replicas, one.isr, one.elr)
        for name in image.topic_names()
        if topics is None or name in topics
        for one in image.partitions(image.topic_id(name) or b"")
    ]
    _print_section(("TOPIC", "#PARTITION", "#LEADER", "#EPOCH", "REPLICAS", "ISR", "ELR"), rows)
    configs = [
        (found["type"], found["name"] or "(default)", key, value)
        for found in configs_of(image)
        for key, value in found["values"].items()
    ]
    _print_section(("CONFIG OF", "NAME", "KEY", "VALUE"), configs)


def _print_section(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if rows:
        print()
        print_table(columns, rows)
