"""Consume, transform, produce with librdkafka: an application that copies each record of a topic once.

`python -m tests.support.copier SETTINGS JOURNAL` runs one as a process. SETTINGS is JSON: the fields of `Settings`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.transaction_history import Copied, Outcome

CALL_S: Final = 30.0
RECORDS_MAX: Final = 20
ABORTED_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """What a copier copies, and with which ids."""

    servers: str
    transactional_id: str
    group: str = "copiers"
    source: str = "input"
    target: str = "output"
    transaction_timeout_ms: int = 10_000
    consumer: Mapping[str, str | int] = field(default_factory=dict)
    """More settings of the consumer."""


class Copier:
    """Copies records to the partition of the same number; after an error it starts over with new clients."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_stopped = threading.Event()
        self.restarts = 0
        self._assignments = 0

    def run(self) -> None:
        """Copy until it is stopped."""
        while not self.is_stopped.is_set():
            try:
                self._copy()
            except KafkaException:
                self.restarts += 1

    def on_call(self) -> None:
        """Hook for subclasses: a call of librdkafka has returned."""

    def copy_in_transaction(self, producer: Producer, found: Sequence[Message], commit: Callable[[], None]) -> bool:
        """Produce copies, and end the transaction; return whether it was committed. Raises KafkaException."""
        for message in found:
            producer.produce(self.settings.target, message.value(), partition=message.partition())
        commit()
        return True

    def _copy(self) -> None:
        """Raises KafkaException; the transaction is then aborted, here or when the id is used again."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.settings.servers,
                "group.id": self.settings.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # librdkafka's send_offsets_to_transaction may not return after coordinators have died, although the
                # brokers have answered every request. Other members then take over the partitions of this copier.
                "max.poll.interval.ms": 10_000,
                "log_level": 0,
                **self.settings.consumer,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self.settings.servers,
                "transactional.id": self.settings.transactional_id,
                "transaction.timeout.ms": self.settings.transaction_timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(CALL_S)
            self.on_call()
            consumer.subscribe([self.settings.source], on_assign=self._on_assignment, on_revoke=self._on_assignment)
            while not self.is_stopped.is_set():
                self._copy_some(consumer, producer)
        finally:
            with suppress(KafkaException, RuntimeError):
                consumer.close()

    def _on_assignment(self, _: Consumer, __: Sequence[TopicPartition]) -> None:
        self._assignments += 1

    def _copy_some(self, consumer: Consumer, producer: Producer) -> None:
        """Copy in one transaction.

        The member's identity is taken before the records are read, so that the coordinator refuses their offsets if the
        partitions have been reassigned since.
        """
        member, assignments = consumer.consumer_group_metadata(), self._assignments
        found = [one for one in consumer.consume(RECORDS_MAX, 0.1) if one.error() is None]
        self.on_call()
        if not found:
            return
        if assignments != self._assignments or not _is_of_member(member):
            _rewind(consumer, found)
            return
        producer.begin_transaction()

        def commit() -> None:
            # Only the offsets of what was copied: the assignment may have changed since.
            retried(lambda: producer.send_offsets_to_transaction(_offsets_after(found), member, CALL_S))
            self.on_call()
            retried(lambda: producer.commit_transaction(CALL_S))

        try:
            if not self.copy_in_transaction(producer, found, commit):
                retried(lambda: producer.abort_transaction(CALL_S))
                _rewind(consumer, found)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                retried(lambda: producer.abort_transaction(CALL_S))
            raise
        finally:
            self.on_call()


def _is_of_member(metadata: object) -> bool:
    """Whether librdkafka's group metadata contain a generation.

    Without one, as after a session has ended, the coordinator does not check which member commits the offsets
    (KIP-447).
    """
    assert isinstance(metadata, bytes)
    prefix = b"CGMDv2:"
    assert metadata.startswith(prefix), metadata
    return int.from_bytes(metadata[len(prefix) : len(prefix) + 4], sys.byteorder, signed=True) >= 0


def _offsets_after(found: Sequence[Message]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, max(all_) + 1) for (topic, partition), all_ in _by_place(found).items()]


def _rewind(consumer: Consumer, found: Sequence[Message]) -> None:
    """Read these records again, unless another member does. Raises KafkaException."""
    assigned = {(one.topic, one.partition) for one in consumer.assignment()}
    for (topic, partition), offsets in _by_place(found).items():
        if (topic, partition) in assigned:
            consumer.seek(TopicPartition(topic, partition, min(offsets)))


def _by_place(found: Sequence[Message]) -> dict[tuple[str, int], list[int]]:
    places: dict[tuple[str, int], list[int]] = {}
    for message in found:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        places.setdefault((topic, partition), []).append(offset)
    return places


def retried(call: Callable[[], object]) -> None:
    """Repeat a call while librdkafka says that the error is retriable."""
    end = time.monotonic() + CALL_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return


class JournalingCopier(Copier):
    """Names each transaction, aborts some, and writes the outcome of each to a journal."""

    def __init__(self, settings: Settings, journal: Path) -> None:
        super().__init__(settings)
        self._journal = journal.open("a", buffering=1)
        self._beat = beat_of(journal)
        self._count = 0
        self._pauses_next = False

    def on_call(self) -> None:
        """See Copier."""
        self._beat.touch()

    def copy_in_transaction(self, producer: Producer, found: Sequence[Message], commit: Callable[[], None]) -> bool:
        """See Copier."""
        name = f"{self.settings.transactional_id}.{os.getpid()}.{self._count}"
        self._count += 1
        for index, message in enumerate(found):
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert isinstance(value, bytes)
            assert partition is not None
            assert offset is not None
            copied = Copied(name, len(found), index, partition, offset, value.decode())
            producer.produce(self.settings.target, copied.encode(), partition=partition)
        if random.random() < ABORTED_SHARE:
            producer.flush(CALL_S)
            self._journal.write(f"{Outcome.ABORTED} {name}\n")  # not committed, whether or not the abort succeeds
            return False
        if self._pauses_next:
            self._pauses_next = False
            os.kill(os.getpid(), signal.SIGSTOP)
        commit()
        self._journal.write(f"{Outcome.COMMITTED} {name}\n")
        return True

    def pause_in_next_transaction(self) -> None:
        """The records of the next transaction are read long before their offsets are committed."""
        self._pauses_next = True


def beat_of(journal: Path) -> Path:
    """The file whose modification time is that of the last call of librdkafka that returned."""
    return journal.with_suffix(".beat")


def outcomes(journal: Path) -> dict[str, Outcome]:
    """The outcome of each transaction of a journal, by name."""
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    return {name: Outcome(outcome) for outcome, name in lines}


def command(settings: Settings, journal: Path) -> list[str]:
    """The command line of a process."""
    return [sys.executable, "-m", "tests.support.copier", json.dumps(asdict(settings)), str(journal)]


def main() -> None:
    """Run a copier until SIGTERM."""
    copier = JournalingCopier(Settings(**json.loads(sys.argv[1])), Path(sys.argv[2]))
    signal.signal(signal.SIGTERM, lambda *_: copier.is_stopped.set())
    signal.signal(signal.SIGUSR2, lambda *_: copier.pause_in_next_transaction())
    faulthandler.register(signal.SIGUSR1)  # says where it is, also while a call of librdkafka holds Python's lock
    copier.run()


if __name__ == "__main__":
    main()
