"""`klamm consume`."""

from __future__ import annotations

import base64
import datetime
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from klamm import records
from klamm.cli import group_admin
from klamm.cli.client import Client, check
from klamm.cli.connection import ClientError
from klamm.cli.group_admin import LATEST, TopicPartition, list_offsets
from klamm.cli.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, say
from klamm.cli.positions import parse_position
from klamm.cli.topic_admin import Topic, topics
from klamm.records import Record

FETCH: Final = 1
_PARTITION_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 16 << 20
_WAIT_MS: Final = 500


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    *,
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="beginning, end, an offset, -N from the end, or a time.")
    ] = "beginning",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")] = False,
    partition: Annotated[list[int] | None, typer.Option("--partition", min=0, help="May be repeated.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Go on where this group stopped, and commit for it.")
    ] = None,
    show_key: Annotated[bool, typer.Option("--key", "-k", help="Print the key before the value.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic: the values, or with --json everything, one record a line.

    A group is used without joining it: it must have no members, and its offsets are committed when the command ends.

    \b
    [bold]Examples[/bold]
      klamm consume greetings
      klamm consume orders --from end --follow
      klamm consume orders --from 2026-01-31T12:00 -n 10 --json
      klamm consume orders --group billing
    """
    with Client(bootstrap) as client:
        (found,) = topics(client, [topic])
        where = _chosen(found, partition)
        committed = group_admin.committed_offsets(client, group) if group else {}
        offsets = parse_position(start).resolve(client, where, {})
        offsets |= {one: committed[one] for one in where if one in committed}
        reader = Reader(client, found, offsets, follow=follow)
        try:
            for number, (where_from, record) in enumerate(reader.records(), start=1):
                _print(where_from, record, show_key=show_key, as_json=as_json)
                if number == count:
                    break
        except KeyboardInterrupt:
            say("")
        finally:
            sys.stdout.flush()
            if group and reader.next_offsets:
                group_admin.commit(client, group, reader.next_offsets)


class Reader:
    """Reads partitions from offsets on, to where they ended when it began, or for ever."""

    def __init__(self, client: Client, topic: Topic, offsets: Mapping[TopicPartition, int], *, follow: bool) -> None:
        """`offsets`: where to begin, and in which partitions."""
        self._client = client
        self._leaders = {(topic.name, one.index): one.leader for one in topic.partitions}
        self._at = dict(offsets)
        self._ends = None if follow else list_offsets(client, dict.fromkeys(offsets, LATEST))
        self.next_offsets: dict[TopicPartition, int] = {}
        """Behind the last record given out, by partition."""

    def records(self) -> Iterator[tuple[TopicPartition, Record]]:
        """The records, each with its partition."""
        while True:
            unfinished = [one for one, at in self._at.items() if self._ends is None or at < self._ends[one]]
            if not unfinished:
                return
            for leader in sorted({self._leaders[one] for one in unfinished}):
                theirs = [one for one in unfinished if self._leaders[one] == leader]
                yield from self._fetch(leader, theirs)

    def _fetch(self, leader: int, wanted: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Record]]:
        if leader < 0:
            raise ClientError(f"{wanted[0][0]}-{wanted[0][1]} has no leader at the moment")
        partitions = [
            {"partition": one[1], "fetch_offset": self._at[one], "partition_max_bytes": _PARTITION_BYTES}
            for one in wanted
        ]
        answer = self._client.broker(leader).request(
            FETCH,
            12,
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[{"topic": wanted[0][0], "partitions": partitions}],
        )
        check(answer.error_code, "fetch")
        for topic in answer.responses:
            for one in topic.partitions:
                check(one.error_code, f"{topic.topic}-{one.partition_index}")
                yield from self._take((topic.topic, one.partition_index), one)

    def _take(self, where: TopicPartition, answer: Any) -> Iterator[tuple[TopicPartition, Record]]:
        data = answer.records or b""
        try:
            found = records.decode(data)
        except records.RecordsDamagedError as error:
            raise ClientError(f"{where[0]}-{where[1]} at offset {self._at[where]}: {error}") from None
        for record in found:
            # A batch begins before the offset that was asked for when that lies inside.
            if record.offset >= self._at[where]:
                self.next_offsets[where] = record.offset + 1
                yield where, record
        self._at[where] = max(self._at[where], records.next_offset(data) or 0)


def _chosen(topic: Topic, wanted: list[int] | None) -> list[TopicPartition]:
    known = [one.index for one in topic.partitions]
    missing = sorted(set(wanted or []) - set(known))
    if missing:
        raise ClientError(f"{topic.name} has the partitions 0 to {len(known) - 1}")
    return [(topic.name, index) for index in (wanted or known)]


def _print(where: TopicPartition, record: Record, *, show_key: bool, as_json: bool) -> None:
    if as_json:
        line = json.dumps(_as_json(where, record), ensure_ascii=False)
    else:
        key = f"{_text(record.key)}\t" if show_key else ""
        line = key + _text(record.value)
    print(line)


def _as_json(where: TopicPartition, record: Record) -> dict[str, Any]:
    return {
        "topic": where[0],
        "partition": where[1],
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "time": _time(record.timestamp_ms),
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": {name: _json_value(value) for name, value in record.headers},
    }


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        return datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return None


def _text(data: bytes | None) -> str:
    """What can be read as it is, with the bytes that cannot as escapes; null as `null`."""
    return "null" if data is None else data.decode(errors="backslashreplace")


def _json_value(data: bytes | None) -> Any:
    """Text, null, or for what is no text its base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
