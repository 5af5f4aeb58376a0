"""`klamm produce`."""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

from klamm import records
from klamm.cli.client import Client, check, retried
from klamm.cli.connection import ClientError
from klamm.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, progress, say
from klamm.cli.topic_admin import Topic, topics
from klamm.protocol.errors import ErrorCode
from klamm.records import NewRecord

PRODUCE: Final = 0
BATCH_BYTES: Final = 512 * 1024
_TIMEOUT_MS: Final = 30_000


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE...]", help="Records; without any, lines of stdin.")
    ] = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    separator: Annotated[
        str | None, typer.Option("--key-separator", "-s", help="What parts key and value in each line.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header. May be repeated.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read lines from a file.", exists=True)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Lines are JSON: {"value": ..., "key": ..., "headers": {...}}.')
    ] = False,
    compression: Annotated[str, typer.Option("--compression", "-z", help=f"{', '.join(records.CODECS)}.")] = "none",
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="One partition for all.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records to a topic; each is acknowledged before the command ends.

    \b
    [bold]Examples[/bold]
      klamm produce greetings hello world
      klamm produce orders --key 42 '{"amount": 7}'
      seq 1000 | klamm produce numbers
      klamm produce prices --key-separator : --file prices.txt
      klamm produce events --json --compression zstd < events.jsonl
    """
    if compression not in records.CODECS:
        raise typer.BadParameter(f"{compression} is not one of {', '.join(records.CODECS)}")
    headers = [_pair(text) for text in header or []]
    with Client(bootstrap) as client, progress(f"writing to {topic}") as counted:
        producer = Producer(client, topic, compression, partition)
        for record in _read(values, file, separator, as_json):
            own = record if record.key is not None or key is None else replace(record, key=key.encode())
            producer.add(replace(own, headers=[*headers, *own.headers]))
            counted(producer.count)
        producer.flush()
    say(f"{producer.count} record{'' if producer.count == 1 else 's'} written to {topic}")


class Producer:
    """Collects records by partition and sends a batch when it is large enough. Waits for every answer."""

    def __init__(self, client: Client, topic: str, compression: str, partition: int | None) -> None:
        """Raises ClientError when there is no such topic or partition; a topic is created where the broker does so."""
        self.count = 0
        self._client = client
        self._topic = _found(client, topic)
        self._compression = compression
        if partition is not None and partition >= len(self._topic.partitions):
            raise ClientError(f"{topic} has the partitions 0 to {len(self._topic.partitions) - 1}")
        self._partition = partition
        self._next = 0
        self._waiting: dict[int, list[NewRecord]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, record: NewRecord) -> None:
        """Add a record, and send its partition's batch when it is full."""
        partition = self._choose(record.key)
        self._waiting.setdefault(partition, []).append(record)
        size = len(record.key or b"") + len(record.value or b"") + 64
        self._bytes[partition] = self._bytes.get(partition, 0) + size
        if self._bytes[partition] >= BATCH_BYTES:
            self._send(partition)

    def flush(self) -> None:
        """Send everything."""
        for partition in sorted(self._waiting):
            self._send(partition)

    def _choose(self, key: bytes | None) -> int:
        """By the key's hash, as librdkafka does by default; keyless records fill one batch after the other."""
        count = len(self._topic.partitions)
        if self._partition is not None:
            return self._partition
        return self._next % count if key is None else zlib.crc32(key) % count

    def _send(self, partition: int) -> None:
        batch = self._waiting.pop(partition, [])
        self._bytes.pop(partition, None)
        if not batch:
            return
        data = records.encode(batch, compression=self._compression)
        retried(lambda: self._exchange(partition, data))
        self.count += len(batch)
        self._next += 1

    def _exchange(self, partition: int, data: bytes) -> None:
        leader = self._topic.partitions[partition].leader
        wanted = [{"name": self._topic.name, "partition_data": [{"index": partition, "records": data}]}]
        answer = self._client.broker(leader).request(
            PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=wanted
        )
        for topic in answer.responses:
            for one in topic.partition_responses:
                check(one.error_code, f"{topic.name}-{one.index}", getattr(one, "error_message", None))


def _found(client: Client, name: str) -> Topic:
    """The topic, once it has leaders. Asking creates it where the broker is set so."""

    def ask() -> Topic:
        for entry in client.metadata([name], create=True).topics:
            check(entry.error_code, f"topic {name}")
        (topic,) = topics(client, [name])
        if any(one.leader < 0 for one in topic.partitions):
            check(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
        return topic

    # A broker answers UNKNOWN_TOPIC_OR_PARTITION also for a topic that it has just begun to create.
    found: Topic = retried(ask, attempts=20, passing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found


def _read(values: list[str] | None, file: Path | None, separator: str | None, as_json: bool) -> Iterator[NewRecord]:
    if values:
        yield from _parsed(values, separator, as_json)
    elif file is not None:
        with file.open(encoding="utf-8") as lines:
            yield from _parsed(_lines(lines), separator, as_json)
    else:
        if sys.stdin.isatty():
            say("reading lines from the terminal; Ctrl-D ends")
        yield from _parsed(_lines(sys.stdin), separator, as_json)


def _lines(lines: TextIO) -> Iterator[str]:
    return (line.removesuffix("\n") for line in lines)


def _parsed(texts: Iterable[str], separator: str | None, as_json: bool) -> Iterator[NewRecord]:
    for number, text in enumerate(texts, start=1):
        now_ms = time.time_ns() // 1_000_000
        if as_json:
            yield _of_json(text, number, now_ms)
        elif separator is None:
            yield NewRecord(text.encode(), timestamp_ms=now_ms)
        else:
            key, found, value = text.partition(separator)
            if not found:
                raise ClientError(f"line {number} has no '{separator}'")
            yield NewRecord(value.encode(), key.encode(), now_ms)


def _of_json(text: str, number: int, now_ms: int) -> NewRecord:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ClientError(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict) or "value" not in fields:
        raise ClientError(f'line {number} is not {{"value": ..., "key": ..., "headers": {{...}}}}')
    headers = [(str(name), _bytes(value)) for name, value in (fields.get("headers") or {}).items()]
    timestamp_ms = fields.get("timestamp_ms", now_ms)
    if not isinstance(timestamp_ms, int):
        raise ClientError(f"line {number}: timestamp_ms is not a number")
    return NewRecord(_bytes(fields["value"]), _bytes(fields.get("key")), timestamp_ms, headers)


def _bytes(value: Any) -> bytes | None:
    """Texts as they are, other JSON as JSON, null as null."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _pair(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ClientError(f"--header {text} is not name=value")
    return name, value.encode()
