"""`klamm topics dirs` and `klamm topics move-dir`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Final

from klamm.admin import log_dirs as admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.admin.log_dirs import PlacedLog
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, print_json, print_table, say
from klamm.client import ClientError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_partition import TopicPartition

LOOK_S: Final = 0.2

Names = Annotated[list[str], Argument(metavar="NAME...", help="Topic names.")]
OptionalNames = Annotated[list[str] | None, Argument(metavar="[NAME...]", help="Topic names; all topics by default.")]
Broker = Annotated[int | None, Option("--broker", min=0, help="Limit it to this broker.")]


def dirs(
    names: OptionalNames = None,
    *,
    broker: Broker = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show in which log directories replicas are, how large they are, and which of them move.

    \b
    [bold]Examples[/bold]
      klamm topics dirs
      klamm topics dirs orders --broker 1 --json
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        described = admin.describe(client, None if broker is None else [broker])
    found = admin.logs(described, names)
    if as_json:
        print_json(
            [
                {
                    "broker": node,
                    "path": place.log_dir,
                    "error": None if place.error_code is ErrorCode.NONE else place.error_code.name,
                    "cordoned": place.is_cordoned,
                    "replicas": [_row(one) for one in found if (one.broker, one.path) == (node, place.log_dir)],
                }
                for node, places in described.items()
                for place in places
            ]
        )
        return
    for node, places in described.items():
        for place in places:
            if place.error_code is not ErrorCode.NONE:
                say(f"broker {node}: {place.log_dir} is offline ({place.error_code.name})")
            elif place.is_cordoned:
                say(f"broker {node}: {place.log_dir} is cordoned")
    rows = (
        (one.topic, one.partition, one.broker, one.path, one.size, one.lag, "copy" if one.is_future else "")
        for one in found
    )
    print_table(("TOPIC", "#PARTITION", "#BROKER", "DIRECTORY", "#BYTES", "#LAG", ""), rows)


def move_dir(
    names: Names,
    *,
    to: Annotated[str, Option("--to", metavar="PATH", help="The target log directory, as in the broker's log.dirs.")],
    partition: Annotated[
        list[int] | None, Option("--partition", "-P", min=0, help="Limit it to this partition. May be repeated.")
    ] = None,
    broker: Broker = None,
    wait: Annotated[bool, Option("--wait", help="Wait until the moves are complete.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Move replicas to another log directory of their broker, while clients use them.

    A move back to the directory where a replica is ends its move. Without --broker, this concerns every broker that
    has such a directory.

    \b
    [bold]Examples[/bold]
      klamm topics move-dir orders --to /disk2/klamm --wait
      klamm topics move-dir orders --partition 0 --broker 2 --to /disk2/klamm
    """
    with Client(bootstrap, config=client_keys(command_config)) as client:
        topic_admin.topics(client, names)
        described = admin.describe(client, None if broker is None else [broker])
        having = [node for node, places in described.items() if to in [place.log_dir for place in places]]
        if not having:
            raise ClientError(f"no broker has the log directory {to}; see klamm topics dirs")
        found = [one for one in admin.logs(described, names) if partition is None or one.partition in partition]
        moved = 0
        for node in having:
            places = sorted({TopicPartition(one.topic, one.partition) for one in found if one.broker == node})
            admin.move(client, node, to, places)
            moved += len(places)
        if wait:
            _wait(client, having, names, partition)
    say(f"{moved} replicas {'are in' if wait else 'move to'} {to}")


def _wait(client: Client, brokers: Sequence[int], names: Sequence[str], indexes: Sequence[int] | None) -> None:
    def moves(one: PlacedLog) -> bool:
        return one.is_future and (indexes is None or one.partition in indexes)

    while any(moves(one) for one in admin.logs(admin.describe(client, brokers), names)):
        time.sleep(LOOK_S)


def _row(one: PlacedLog) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "bytes": one.size,
        "lag": one.lag,
        "is_future": one.is_future,
    }
