"""`klamm quorum`, like `kafka-metadata-quorum`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from klamm.admin.quorum import Member, Quorum, observer_directory, voter_of
from klamm.cli.framework.command_config import CommandConfig
from klamm.cli.framework.command_group import Elsewhere, Group
from klamm.cli.framework.options import Argument, Option
from klamm.cli.quorum.quorum_options import BootstrapController, BootstrapServer, DryRun, connect, print_change
from klamm.cli.terminal.exits import BadParameter
from klamm.cli.terminal.output import AsJson, confirm, examples, print_json, print_table
from klamm.client import ClientError
from klamm.config import sources
from klamm.config.node_config import NodeConfigError
from klamm.formats.meta_properties import FILE_NAME, parse
from klamm.protocol.messages.voter_messages import VoterListener
from klamm.protocol.uuids import parse_uuid, uuid_text

group = Group(
    examples(
        "Show the metadata quorum, and change its voters.",
        "klamm quorum status --bootstrap-server localhost:9092",
        "klamm quorum status --replication --bootstrap-controller localhost:9093",
        "klamm quorum add controller.properties --bootstrap-controller localhost:9093",
        "klamm quorum remove 3 --bootstrap-controller localhost:9093",
        "klamm quorum doctor --bootstrap-controller localhost:9093",
        "klamm quorum recover server.properties",
    ),
    {
        "doctor": Elsewhere(
            "klamm.cli.quorum.quorum_doctor:doctor",
            "Say why there is no leader, or what is about to go wrong, and what to do. Exits with 1 on a problem.",
        ),
        "recover": Elsewhere(
            "klamm.cli.quorum.quorum_recover:recover",
            "Form a new quorum from the remaining nodes after a majority of the voters is lost permanently.",
        ),
    },
)

DirectoryId = Annotated[
    str | None, Option("--directory-id", "-D", metavar="ID", help="The directory.id of its meta.properties.")
]


@group.command("status")
def status(
    replication: Annotated[
        bool, Option("--replication", "-r", help="Show the progress of each voter and observer.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Show the leader, the voters, and the progress of each replica.

    \b
    [bold]Examples[/bold]
      klamm quorum status
      klamm quorum status --replication
      klamm quorum status --bootstrap-controller localhost:9093 --json
    """
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        quorum = client.describe()
    if as_json:
        print_json(_as_json(quorum))
    elif replication:
        columns = ("NODEID", "DIRECTORYID", "#LOGENDOFFSET", "#LAG", "#LASTFETCHMS", "#LASTCAUGHTUPMS", "STATUS")
        print_table(columns, [_row(quorum, member) for member in quorum.members])
    else:
        for name, value in _status_lines(quorum):
            print(f"{name + ':':<24}{value}")


@group.command("add")
def add(
    config: Annotated[
        Path | None,
        Argument(
            metavar="[CONTROLLER.PROPERTIES]", help="The configuration file of the new controller, on its machine."
        ),
    ] = None,
    *,
    controller_id: Annotated[
        int | None, Option("--controller-id", "-i", min=0, help="The node id of the new controller.")
    ] = None,
    directory_id: DirectoryId = None,
    listener: Annotated[
        list[str] | None,
        Option(
            "--listener", "-l", metavar="NAME://HOST:PORT", help="A listener of the new controller. May be repeated."
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Make a controller that runs and follows the log a voter.

    On the machine of the controller, its configuration file is enough.
    Elsewhere give its id and its listener; its directory id is looked up.

    \b
    [bold]Examples[/bold]
      klamm quorum add controller.properties -C localhost:9093
      klamm quorum add --controller-id 3 --listener CONTROLLER://10.0.0.3:9093 -C localhost:9093
    """
    if (config is None) == (controller_id is None):
        raise BadParameter("give the controller's configuration, or --controller-id and --listener")
    listeners = tuple(map(_listener, listener or []))
    directory = None if directory_id is None else _directory(directory_id)
    if config is not None:
        controller_id, directory, listeners = _from_config(config, directory, listeners)
    if controller_id is None or not listeners:
        raise BadParameter("--listener is missing: where the others reach the controller")
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        directory = directory or observer_directory(client.describe(), controller_id)
        if not dry_run:
            client.add(controller_id, directory, listeners)
    urls = list(map(_url, listeners))
    _print_change("add", "added", controller_id, directory, dry_run=dry_run, as_json=as_json, listeners=urls)


@group.command("remove")
def remove(
    controller_id: Annotated[int, Argument(metavar="ID", min=0, help="The node id of the voter.")],
    *,
    directory_id: DirectoryId = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Remove a voter from the quorum. Its directory id is looked up if it is not given.

    \b
    [bold]Examples[/bold]
      klamm quorum remove 3
      klamm quorum remove 3 --directory-id 5Xa9LKrZSfS6ZzNnMqxjnA --yes
    """
    wanted = None if directory_id is None else _directory(directory_id)
    with connect(bootstrap_server, bootstrap_controller, command_config) as client:
        quorum = client.describe()
        voter = voter_of(quorum, controller_id, wanted)
        if not dry_run:
            if not yes:
                rest = ", ".join(str(one.node_id) for one in quorum.voters if one is not voter)
                confirm(f"Remove controller {controller_id}? Voters {rest or 'none'} stay.")
            client.remove(controller_id, voter.directory_id)
    _print_change("remove", "removed", controller_id, voter.directory_id, dry_run=dry_run, as_json=as_json)


# Input


def _directory(text: str) -> bytes:
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise BadParameter(str(error)) from None


def _listener(text: str) -> VoterListener:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    if not name or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadParameter(f"'{text}' is not NAME://HOST:PORT")
    return VoterListener(name, host.strip("[]"), int(port))


def _from_config(
    path: Path, directory_id: bytes | None, listeners: tuple[VoterListener, ...]
) -> tuple[int, bytes, tuple[VoterListener, ...]]:
    try:
        config = sources.load(path)
    except NodeConfigError as error:
        raise ClientError(str(error)) from None
    if not config.is_controller:
        raise ClientError(f"{path}: process.roles has no controller")
    if directory_id is None:
        file = config.metadata_log_dir / FILE_NAME
        try:
            directory_id = parse(file.read_text()).directory_id
        except (OSError, ValueError) as error:
            raise ClientError(f"{file}: {error}; format the controller first, or give --directory-id") from None
    if directory_id is None:
        raise ClientError(f"{config.metadata_log_dir / FILE_NAME} has no directory.id: start the controller once")
    own = tuple(VoterListener(one.name, one.host or "localhost", one.port) for one in config.advertised_controllers)
    return config.node_id, directory_id, listeners or own


# Output


def _print_change(
    verb: str,
    done: str,
    node_id: int,
    directory_id: bytes,
    *,
    dry_run: bool,
    as_json: bool,
    listeners: list[str] | None = None,
) -> None:
    value: dict[str, Any] = {"controllerId": node_id, "directoryId": uuid_text(directory_id)}
    value |= {"endpoints": listeners} if listeners else {}
    controller = f"controller {node_id} with directory id {uuid_text(directory_id)}"
    print_change(verb, done, controller, value, dry_run=dry_run, as_json=as_json)


def _status_lines(quorum: Quorum) -> list[tuple[str, object]]:
    return [
        ("ClusterId", quorum.cluster_id),
        ("LeaderId", quorum.leader_id),
        ("LeaderEpoch", quorum.leader_epoch),
        ("HighWatermark", quorum.high_watermark),
        ("MaxFollowerLag", quorum.max_follower_lag),
        ("MaxFollowerLagTimeMs", quorum.max_follower_lag_ms),
        ("CurrentVoters", json.dumps([_named(member) for member in quorum.voters])),
        ("CurrentObservers", json.dumps([_named(member) for member in quorum.observers])),
    ]


def _named(member: Member) -> dict[str, Any]:
    named: dict[str, Any] = {"id": member.node_id}
    if any(member.directory_id):
        named["directoryId"] = uuid_text(member.directory_id)
    if member.endpoints:
        named["endpoints"] = list(map(_url, member.endpoints))
    return named


def _url(listener: VoterListener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


def _row(quorum: Quorum, member: Member) -> tuple[object, ...]:
    return (
        member.node_id,
        uuid_text(member.directory_id) if any(member.directory_id) else None,
        member.log_end_offset,
        _lag(quorum, member),
        member.last_fetch_ms,
        member.last_caught_up_ms,
        _state(quorum, member),
    )


def _lag(quorum: Quorum, member: Member) -> int:
    return quorum.leader_end_offset - max(member.log_end_offset, 0)


def _state(quorum: Quorum, member: Member) -> str:
    if not member.is_voter:
        return "Observer"
    return "Leader" if member.node_id == quorum.leader_id else "Follower"


def _as_json(quorum: Quorum) -> dict[str, Any]:
    def full(member: Member) -> dict[str, Any]:
        return _named(member) | {
            "status": _state(quorum, member),
            "logEndOffset": member.log_end_offset,
            "lag": _lag(quorum, member),
            "lastFetchTimestamp": member.last_fetch_ms,
            "lastCaughtUpTimestamp": member.last_caught_up_ms,
        }

    return {
        "clusterId": quorum.cluster_id,
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "maxFollowerLag": quorum.max_follower_lag,
        "maxFollowerLagTimeMs": quorum.max_follower_lag_ms,
        "currentVoters": list(map(full, quorum.voters)),
        "currentObservers": list(map(full, quorum.observers)),
    }
