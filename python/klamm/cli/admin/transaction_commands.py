"""`klamm transactions`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from klamm.admin import transactions as admin
from klamm.admin.client import Client
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.terminal.exits import BadParameter
from klamm.cli.terminal.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    confirm,
    examples,
    print_json,
    print_table,
    say,
)
from klamm.protocol.topic_partition import TopicPartition

HANGING_AFTER_S: Final = 900
"""The default of `transaction.max.timeout.ms`."""

group = Group(
    examples(
        "List and describe transactions, find those that hang, and abort them.",
        "klamm transactions list --state Ongoing",
        "klamm transactions describe billing-1",
        "klamm transactions find-hanging",
        "klamm transactions abort orders:0 --start-offset 4711",
    )
)


@group.command("list")
def list_transactions(
    *,
    state: Annotated[
        list[str] | None,
        Option("--state", metavar="STATE", help="Only ids in this state, such as Ongoing. May be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, Option("--producer-id", help="Only ids of this producer. May be repeated.")
    ] = None,
    longer_than: Annotated[
        int | None,
        Option("--longer-than", min=0, metavar="SECONDS", help="Only transactions that began at least so long ago."),
    ] = None,
    pattern: Annotated[
        str | None, Option("--pattern", metavar="REGEX", help="Only ids that match this expression as a whole.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids of the cluster.

    \b
    [bold]Examples[/bold]
      klamm transactions list
      klamm transactions list --state Ongoing --longer-than 60
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = admin.transactions(
            client,
            states=state or (),
            producer_ids=producer_id or (),
            longer_than_ms=-1 if longer_than is None else longer_than * 1000,
            pattern=pattern,
        )
    if as_json:
        print_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "coordinator": one.coordinator,
                    "producer_id": one.producer_id,
                    "state": one.state,
                }
                for one in found
            ]
        )
    elif found:
        rows = ((one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found)
        print_table(("TRANSACTIONAL ID", "#COORDINATOR", "#PRODUCER ID", "STATE"), rows)
    else:
        say("no transactional ids")


@group.command("describe")
def describe(
    ids: Annotated[list[str], Argument(metavar="ID...", help="Transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of transactional ids, and the partitions of their open transactions.

    \b
    [bold]Examples[/bold]
      klamm transactions describe billing-1
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = [admin.describe(client, one) for one in ids]
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = (
        (
            one.transactional_id,
            one.coordinator,
            one.producer_id,
            one.producer_epoch,
            one.state,
            one.timeout_ms / 1000,
            _time(one.start_ms),
            [_name(where) for where in one.partitions] or None,
        )
        for one in found
    )
    columns = (
        "TRANSACTIONAL ID",
        "#COORDINATOR",
        "#PRODUCER ID",
        "#EPOCH",
        "STATE",
        "#TIME-OUT S",
        "STARTED",
        "PARTITIONS",
    )
    print_table(columns, rows)


@group.command("find-hanging")
def find_hanging(
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC...]", help="Topics to check; all topics by default.")
    ] = None,
    *,
    older_than: Annotated[
        int,
        Option(
            "--older-than",
            min=0,
            metavar="SECONDS",
            help="Only transactions without a write for so long; not less than `transaction.max.timeout.ms`.",
        ),
    ] = HANGING_AFTER_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition although their coordinator has ended them.

    Consumers with read_committed stop at such a transaction.

    \b
    [bold]Examples[/bold]
      klamm transactions find-hanging
      klamm transactions find-hanging orders --older-than 3600
    """
    before_ms = int((time.time() - older_than) * 1000)
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = admin.find_hanging(client, topics or None, before_ms=before_ms)
    if as_json:
        print_json([_open_as_json(one) for one in found])
    elif found:
        _print_open(found)
    else:
        say("no hanging transactions")


@group.command("abort")
def abort(
    partition: Annotated[str, Argument(metavar="TOPIC:PARTITION", help="The partition, such as orders:0.")],
    *,
    start_offset: Annotated[
        int, Option("--start-offset", min=0, help="The offset at which the transaction begins; see find-hanging.")
    ],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition. Its coordinator is not asked.

    Only for transactions that `find-hanging` shows: another one would be aborted in this partition and committed in the
    others.

    \b
    [bold]Examples[/bold]
      klamm transactions abort orders:0 --start-offset 4711
    """
    topic, _, number = partition.rpartition(":")
    if not topic or not number.isdecimal():
        raise BadParameter(f"'{partition}' is not TOPIC:PARTITION")
    if not yes:
        confirm(f"Abort the transaction that begins at offset {start_offset} of {partition}?")
    with Client(bootstrap, config=client_keys(command_config)) as client:
        found = admin.transaction_at(client, TopicPartition(topic, int(number)), start_offset)
        admin.abort(client, found)
    if as_json:
        print_json(_open_as_json(found))
    else:
        say(f"aborted: {partition}, offset {start_offset}, producer {found.producer_id}")


def _print_open(found: Sequence[admin.OpenTransaction]) -> None:
    columns = ("PARTITION", "#START OFFSET", "#PRODUCER ID", "#EPOCH", "#COORDINATOR EPOCH", "LAST WRITE")
    rows = (
        (
            _name(one.where),
            one.start_offset,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            _time(one.last_timestamp_ms),
        )
        for one in found
    )
    print_table(columns, rows)


def _name(where: TopicPartition) -> str:
    return f"{where.topic}:{where.partition}"


def _time(since_1970_ms: int) -> str | None:
    if since_1970_ms < 0:
        return None
    return datetime.fromtimestamp(since_1970_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _as_json(one: admin.Transaction) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started": _time(one.start_ms),
        "partitions": [{"topic": where.topic, "partition": where.partition} for where in one.partitions],
    }


def _open_as_json(one: admin.OpenTransaction) -> dict[str, Any]:
    return {
        "topic": one.where.topic,
        "partition": one.where.partition,
        "start_offset": one.start_offset,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_write": _time(one.last_timestamp_ms),
    }
