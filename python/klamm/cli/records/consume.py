"""`klamm consume`."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Annotated, Final

from klamm.admin.client import Client, is_outage
from klamm.admin.topics import Topic, topics
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument
from klamm.cli.membership.consumer_member import ConsumerMember
from klamm.cli.membership.member import Member
from klamm.cli.records.consume_options import (
    Acknowledge,
    Count,
    Follow,
    FromBeginning,
    Group,
    GroupProtocol,
    Instance,
    Offset,
    Partitions,
    Share,
    ShowKey,
    Start,
)
from klamm.cli.records.group_session import GroupSession
from klamm.cli.records.positions import Position, parse_position
from klamm.cli.records.printer import Printer
from klamm.cli.records.reader import Reader
from klamm.cli.records.share_reader import ShareReader
from klamm.cli.terminal.exits import BadParameter
from klamm.cli.terminal.interrupts import ends_on_signals
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, say
from klamm.client import ClientError
from klamm.protocol.membership import CLASSIC, CONSUMER
from klamm.protocol.messages.share_sessions import AcknowledgeType
from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.uuids import uuid_text

OUTAGE_PAUSE_S: Final = 0.5


def consume(
    topic: Annotated[str, Argument(help="The topic name.")],
    *,
    start: Start = None,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    count: Count = None,
    follow: Follow = False,
    partition: Partitions = None,
    group: Group = None,
    instance: Instance = None,
    group_protocol: GroupProtocol = CLASSIC,
    share: Share = False,
    acknowledge: Acknowledge = None,
    show_key: ShowKey = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic: the values, or with --json everything, one record a line.

    With --group it joins the group, reads the assigned partitions from the
    committed offsets on, commits every 5 seconds and at the end, and leaves.
    --from then applies to partitions without a committed offset. With
    --follow it waits for a broker or coordinator that is unavailable, then
    continues.

    With --share it takes records that no other member has, and acknowledges
    each after printing it. It ends when no record was free for 5 seconds. A new
    group starts where its config share.auto.offset.reset says, by default at
    the end.

    \b
    [bold]Examples[/bold]
      klamm consume greetings
      klamm consume orders --from end --follow
      klamm consume orders --from 2026-01-31T12:00 -n 10 --json
      klamm consume orders --partition 0 --offset 42
      klamm consume orders --group billing --follow
      klamm consume orders --group billing --group-protocol consumer --follow
      klamm consume orders --group billing --group-instance-id till-1 --follow
      klamm consume orders --group workers --share --follow
      klamm consume orders --group workers --share --acknowledge reject -n 1
    """
    _check_membership(group, partition, instance, group_protocol)
    position = _position(start, from_beginning=from_beginning, offset=offset, has_partition=bool(partition))
    has_position = from_beginning or start is not None or offset is not None
    kind = _acknowledgement(acknowledge, share=share)
    if share and (group is None or instance is not None or group_protocol != CLASSIC or has_position):
        raise BadParameter("--share needs --group, and no start position, --group-instance-id or --group-protocol")
    with Client(bootstrap, config=client_keys(command_config)) as client:
        (found,) = topics(client, [topic])
        printer = Printer(count, show_key=show_key, as_json=as_json)
        outages = Outages(client, is_waiting=follow)
        if share and group is not None:
            _read_shared(ShareReader(client, group, topic, kind, follow=follow), printer, outages)
            return
        reader = Reader(client, found, position, follow=follow)
        with ends_on_signals():
            if group is None:
                reader.assign(_chosen(found, partition), {})
                while not (reader.is_done or printer.is_done):
                    with outages:
                        printer.print_some(reader)
            else:
                member = _member(group, topic, instance, group_protocol)
                _read_as_member(GroupSession(client, reader, member), reader, printer, outages)


def _check_membership(group: str | None, partition: list[int] | None, instance: str | None, protocol: str) -> None:
    """Raises BadParameter if the options of a member do not fit together."""
    if group is not None and partition:
        raise BadParameter("--group and --partition exclude each other: the group assigns the partitions")
    if instance is not None and group is None:
        raise BadParameter("--group-instance-id needs --group")
    if protocol not in (CLASSIC, CONSUMER):
        raise BadParameter(f"--group-protocol {protocol} is neither {CLASSIC} nor {CONSUMER}")
    if protocol == CONSUMER and group is None:
        raise BadParameter("--group-protocol needs --group")


def _acknowledgement(text: str | None, *, share: bool) -> AcknowledgeType:
    """The type of --acknowledge. Raises BadParameter."""
    if text is not None and not share:
        raise BadParameter("--acknowledge needs --share")
    kinds = {kind.name.lower(): kind for kind in AcknowledgeType if kind is not AcknowledgeType.GAP}
    if text is not None and text not in kinds:
        raise BadParameter(f"--acknowledge {text} is none of {', '.join(kinds)}")
    return kinds[text or "accept"]


def _member(group: str, topic: str, instance: str | None, protocol: str) -> Member | ConsumerMember:
    if protocol == CLASSIC:
        return Member(group, frozenset({topic}), instance_id=instance)
    return ConsumerMember(group, frozenset({topic}), uuid_text(os.urandom(16)), instance_id=instance)


def _read_as_member(member: GroupSession, reader: Reader, printer: Printer, outages: Outages) -> None:
    with member, ends_on_signals():  # inside: a stopped member commits and leaves as after reading everything
        member.keep_up()
        while not (member.is_done or printer.is_done):
            with outages:
                printer.print_some(reader)
                member.keep_up()


def _read_shared(reader: ShareReader, printer: Printer, outages: Outages) -> None:
    with reader, ends_on_signals():  # inside: a stopped member acknowledges and leaves as after reading everything
        while not (reader.is_done or printer.is_done):
            reader.records_max = printer.left
            with outages:
                printer.print_some(reader)


class Outages:
    """Waits while a broker or a coordinator is not available; the caller tries again by entering the context again."""

    def __init__(self, client: Client, *, is_waiting: bool) -> None:
        """If `is_waiting` is false, an outage is an error."""
        self._client = client
        self._is_waiting = is_waiting
        self._is_reported = False

    def __enter__(self) -> None:
        """Enter it for each attempt."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not self._is_waiting or not is_outage(error):
            self._is_reported &= error is not None
            return False
        if not self._is_reported:
            say(f"{error}; waiting for it to come back")
            self._is_reported = True
        self._client.start_again()
        time.sleep(OUTAGE_PAUSE_S)
        return True


def _position(start: str | None, *, from_beginning: bool, offset: str | None, has_partition: bool) -> Position:
    """The start position: klamm's --from, or the options of kafka-console-consumer with its rules."""
    if (start is not None) + from_beginning + (offset is not None) > 1:
        raise BadParameter("give one of --from, --from-beginning and --offset")
    if offset is None:
        return parse_position(start or "beginning")
    if not has_partition:
        raise BadParameter("--offset needs --partition")
    if offset.lower() not in ("earliest", "latest") and not offset.isdecimal():
        raise BadParameter(f"--offset {offset} is neither earliest nor latest nor a number of 0 or more")
    return parse_position(offset.lower())


def _chosen(topic: Topic, wanted: list[int] | None) -> list[TopicPartition]:
    known = [one.index for one in topic.partitions]
    missing = sorted(set(wanted or []) - set(known))
    if missing:
        raise ClientError(f"{topic.name} has no partition {missing[0]}, but 0 to {len(known) - 1}")
    return [TopicPartition(topic.name, index) for index in (wanted or known)]
