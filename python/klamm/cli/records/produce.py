"""`klamm produce`."""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

from klamm import records
from klamm.admin.client import LEADER_MOVED, Client, check, retried
from klamm.admin.topics import Topic, topics
from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.records.record_input import RecordInput, Row
from klamm.cli.records.transaction import Transaction
from klamm.cli.terminal.exits import BadParameter
from klamm.cli.terminal.interrupts import SecondInterrupt, held
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, Bootstrap, progress, say
from klamm.client import ClientError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partitions import (
    ALL_IN_SYNC_REPLICAS,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_BYTES: Final = 512 * 1024
_RECORD_BYTES: Final = 64
"""The approximate size of a record without its key and value."""
_TIMEOUT_MS: Final = 30_000
_PRODUCE_VERSION_MAX: Final = 9


def produce(
    topic: Annotated[str, Argument(help="The topic name.")],
    values: Annotated[
        list[str] | None, Argument(metavar="[VALUE...]", help="Record values; lines of stdin by default.")
    ] = None,
    *,
    key: Annotated[str | None, Option("--key", "-k", help="The key of every record.")] = None,
    separator: Annotated[
        str | None, Option("--key-separator", "-s", help="The separator between key and value in each line.")
    ] = None,
    header: Annotated[
        list[str] | None, Option("--header", "-H", metavar="NAME=VALUE", help="A record header. May be repeated.")
    ] = None,
    file: Annotated[Path | None, Option("--file", "-f", help="Read lines from a file instead of stdin.")] = None,
    as_json: Annotated[
        bool, Option("--json", help='Each line is a JSON object: {"value": ..., "key": ..., "headers": {...}}.')
    ] = False,
    compression: Annotated[str, Option("--compression", "-z", help=f"{', '.join(records.CODECS)}.")] = "none",
    partition: Annotated[int | None, Option("--partition", min=0, help="Write all records to this partition.")] = None,
    transactional: Annotated[
        str | None,
        Option(
            "--transactional",
            metavar="ID",
            help="Write all records in one transaction with this transactional id: all or none.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Write records to a topic; each is acknowledged before the command ends.

    \b
    [bold]Examples[/bold]
      klamm produce greetings hello world
      klamm produce orders --key 42 '{"amount": 7}'
      seq 1000 | klamm produce numbers
      klamm produce prices --key-separator : --file prices.txt
      klamm produce events --json --compression zstd < events.jsonl
      klamm produce orders --transactional import-7 --file orders.txt
    """
    if compression not in records.CODECS:
        raise BadParameter(f"{compression} is not one of {', '.join(records.CODECS)}")
    given = RecordInput(key=key, separator=separator, headers=header or [], as_json=as_json)
    with Client(bootstrap, config=client_keys(command_config)) as client, progress(f"writing to {topic}") as counted:
        transaction = None if transactional is None else Transaction(client, transactional)
        producer = Producer(client, topic, compression, partition, transaction)
        try:
            _write(producer, _read(given, values, file), counted)
            if transaction is not None:
                with held():
                    transaction.end(commit=True)
        except (ClientError, KeyboardInterrupt) as error:
            if transaction is not None:
                _abort(transaction)
            elif producer.count:
                producer.tell()
            if transaction is None and isinstance(error, SecondInterrupt):
                say(f"whether {producer.unanswered} more were written is not known: the broker did not answer")
            raise
    producer.tell()


class Producer:
    """Collects records by partition and sends a batch when it is large enough.

    It waits for every response, also after Ctrl-C; a second Ctrl-C raises SecondInterrupt.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        compression: str,
        partition: int | None,
        transaction: Transaction | None = None,
    ) -> None:
        """Raises ClientError if the topic or partition does not exist. The broker may create the topic."""
        self.count = 0
        """Acknowledged records."""
        self.unanswered = 0
        """Records that are in flight, or were when an exchange was aborted."""
        self._client = client
        self._topic = _found(client, topic)
        self._compression = compression
        self.transaction = transaction
        if partition is not None and partition >= len(self._topic.partitions):
            raise ClientError(f"{topic} has no partition {partition}, but 0 to {len(self._topic.partitions) - 1}")
        self._partition = partition
        self._next = 0
        self._waiting: dict[int, list[Row]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, row: Row) -> bool:
        """Add a record, and send its partition's batch if it is full; returns whether it was sent."""
        _, key, value, _ = row
        partition = self._choose(key)
        self._waiting.setdefault(partition, []).append(row)
        size = self._bytes.get(partition, 0) + len(key or b"") + len(value or b"") + _RECORD_BYTES
        self._bytes[partition] = size
        if size < BATCH_BYTES:
            return False
        self._send(partition)
        return True

    def flush(self) -> None:
        """Send all collected records."""
        for partition in sorted(self._waiting):
            self._send(partition)

    def tell(self) -> None:
        """Print the number of acknowledged records."""
        say(f"{self.count} record{'' if self.count == 1 else 's'} written to {self._topic.name}")

    def _choose(self, key: bytes | None) -> int:
        """By the key's hash, as librdkafka's default; records without a key fill one batch after another."""
        count = len(self._topic.partitions)
        if self._partition is not None:
            return self._partition
        return self._next % count if key is None else zlib.crc32(key) % count

    def _send(self, partition: int) -> None:
        # The printed count must be exact, so wait for a batch in flight.
        with held():
            batch = self._waiting.pop(partition, [])
            self._bytes.pop(partition, None)
            if not batch:
                return
            if self.transaction is None:
                data = records.encode(batch, compression=self._compression)
            else:
                data = self.transaction.batch(self._topic.name, partition, batch, self._compression)
            self.unanswered = len(batch)
            retried(lambda: self._exchange(partition, data), passing=LEADER_MOVED)
            self.unanswered = 0
            self.count += len(batch)
            self._next += 1

    def _exchange(self, partition: int, data: bytes) -> None:
        leader = self._topic.partitions[partition].leader
        wanted = TopicProduceData(self._topic.name, partition_data=(PartitionProduceData(partition, data),))
        transactional_id = None if self.transaction is None else self.transaction.id
        request = ProduceRequest(ALL_IN_SYNC_REPLICAS, _TIMEOUT_MS, (wanted,), transactional_id)
        answer = self._client.broker(leader).ask(request, ProduceResponse, _PRODUCE_VERSION_MAX)
        for topic in answer.responses:
            for one in topic.partition_responses:
                if one.error_code in LEADER_MOVED:
                    self._topic = _found(self._client, self._topic.name)
                check(one.error_code, f"{topic.name}-{one.index}", one.error_message)


def _write(producer: Producer, rows: Iterator[Row], counted: Callable[[int], None]) -> None:
    """Write all rows. Rows before an invalid line, or before Ctrl-C, are not lost, unless all or none are wanted."""
    try:
        for row in rows:
            if producer.add(row):
                counted(producer.count)
        producer.flush()
    except (ClientError, KeyboardInterrupt) as error:
        if producer.transaction is None and not isinstance(error, SecondInterrupt):
            with contextlib.suppress(ClientError):
                producer.flush()
        raise


def _abort(transaction: Transaction) -> None:
    """Abort the transaction of a command that failed, unless it may be committed."""
    if transaction.is_ending:
        say("whether the transaction was committed is not known: the broker did not answer")
        return
    with contextlib.suppress(ClientError), held():  # the broker aborts it after its time-out
        transaction.end(commit=False)
    say("nothing was written: the transaction is aborted")


def _found(client: Client, name: str) -> Topic:
    """The topic, after it has leaders. The request creates it if the broker allows that."""

    def ask() -> Topic:
        for entry in client.metadata([name], create=True).topics:
            check(entry.error_code, f"topic {name}")
        (topic,) = topics(client, [name])
        if any(one.leader < 0 for one in topic.partitions):
            check(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
        return topic

    # A broker answers UNKNOWN_TOPIC_OR_PARTITION also for a topic that it is just creating.
    return retried(ask, attempts=20, passing=LEADER_MOVED)


def _read(given: RecordInput, values: list[str] | None, file: Path | None) -> Iterator[Row]:
    if values:
        return given.of_words(values)
    if file is not None:
        return given.of_file(file)
    if sys.stdin.isatty():
        say("reading lines from the terminal; Ctrl-D ends")
    return given.of_lines(sys.stdin.buffer)
