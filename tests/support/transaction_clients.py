"""Clients of a transaction test: copier processes, the source of the records, and a reader of the copies."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support import copier
from tests.support.copier import CALL_S, beat_of, retried
from tests.support.transaction_history import CopyHistory, Outcome, Written
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
PARTITIONS: Final = 4
AHEAD: Final = 400
"""The most records that are written and not yet copied."""
END_S: Final = 240.0
"""How long the last transaction may take."""
STUCK_S: Final = 3 * CALL_S
"""After this time without a call of librdkafka that returned, a copier is ended: some calls have no time-out."""
DUMP_S: Final = 5.0


class CopierProcess:
    """A copier, which may be restarted; all its processes write one journal."""

    def __init__(self, folder: Path, settings: copier.Settings) -> None:
        self.name = settings.transactional_id
        self.journal, self._output = folder / f"{self.name}.journal", folder / f"{self.name}.out"
        self._command = copier.command(settings, self.journal)
        self._process: subprocess.Popen[bytes] | None = None
        self._continues_at: float | None = None
        """The time of the clock when a paused one continues."""
        self._pause_s: float | None = None
        """How long it will pause in its next transaction."""
        self._started_at = 0.0
        """By the wall clock, as all times of the file that shows its calls."""
        self._ran_at = 0.0
        """When it was last seen paused, or was started."""
        self.stuck: list[str] = []
        """Where calls of librdkafka did not return."""

    def start(self) -> None:
        """Start it without waiting."""
        self._continues_at = self._pause_s = None
        self._started_at = self._ran_at = time.time()
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self, seconds: float) -> None:
        """Pause it with SIGSTOP for this time."""
        self.send(signal.SIGSTOP)
        self._continues_at = time.monotonic() + seconds

    def pause_in_transaction(self, seconds: float) -> None:
        """Let it pause itself after it has produced the records of a transaction, and continue it after this time.

        Has no effect before its first call of librdkafka has returned: until then the signal would end it.
        """
        if self._returned_at() > self._started_at:
            self._pause_s = seconds
            self.send(signal.SIGUSR2)

    def stop(self) -> None:
        """SIGTERM, also if it is paused; it is killed if a call of librdkafka does not return."""
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGTERM)
            end = time.monotonic() + END_S
            while process.poll() is None and time.monotonic() < end:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.05)
            if process.poll() is None:
                self._say_where_it_is()
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(CALL_S)

    def look_after(self) -> None:
        """Continue it when its pause is over, and restart it when a call of librdkafka does not return."""
        if self._process is None:
            return
        code = self._process.poll()
        assert code is None, f"{self.name} exited {code}:\n{self._output.read_text()[-4000:]}"
        if self._continues_at is None and is_stopped(self._process.pid):
            self._continues_at, self._pause_s = time.monotonic() + (self._pause_s or 0), None
        if self._continues_at is not None:
            self._ran_at = time.time()
            if time.monotonic() > self._continues_at:
                self._continues_at = None
                self.send(signal.SIGCONT)
        elif time.time() > max(self._ran_at, self._returned_at()) + STUCK_S:
            self._say_where_it_is()
            self.kill()
            self.start()

    def _returned_at(self) -> float:
        beat = beat_of(self.journal)
        return beat.stat().st_mtime if beat.exists() else 0.0

    def _say_where_it_is(self) -> None:
        """Let the process print its stack, which works even while a call of librdkafka holds Python's lock."""
        before = self._output.stat().st_size
        self.send(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: b"in <module>" in self._output.read_bytes()[before:], bound_s=DUMP_S)
        where = self._output.read_bytes()[before:].decode(errors="replace")
        self.stuck.append(f"{self.name} is stuck:\n{where}")


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Source:
    """Writes transactions to "input" until it is stopped, and aborts some; stays a little ahead of the copiers."""

    def __init__(self, servers: str, history: CopyHistory, seed: int) -> None:
        self._servers, self._history, self._rng = servers, history, random.Random(seed)
        self._outcomes = history.source
        self._count = self._written = 0
        self.is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the last transaction."""
        self.is_stopped.set()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), "the source's last transaction did not end"

    def _run(self) -> None:
        while not self.is_stopped.is_set():
            with contextlib.suppress(KafkaException):  # the outcome of the transaction is unknown
                settings = {"bootstrap.servers": self._servers, "transactional.id": "source", "linger.ms": 0}
                producer = Producer({**settings, "transaction.timeout.ms": 20_000, "log_level": 0})
                producer.init_transactions(CALL_S)
                while not self.is_stopped.wait(0.05):
                    if self._written < len(self._history.seen) + AHEAD:
                        self._write(producer)

    def _write(self, producer: Producer) -> None:
        name, size = f"source.{self._count}", self._rng.randint(1, 12)
        self._count += 1
        producer.begin_transaction()
        try:
            for index in range(size):
                value = Written(name, size, index).encode()
                producer.produce("input", value, partition=self._rng.randrange(PARTITIONS))
            if self._rng.random() < 0.2:
                self._outcomes[name] = Outcome.ABORTED
                retried(lambda: producer.abort_transaction(CALL_S))
            else:
                retried(lambda: producer.commit_transaction(CALL_S))
                self._outcomes[name] = Outcome.COMMITTED
                self._written += size
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                retried(lambda: producer.abort_transaction(CALL_S))
                self._outcomes[name] = Outcome.ABORTED
            else:
                raise


class Reader:
    """Reads "output" with read_committed while the copiers work."""

    def __init__(self, servers: str, seen: list[tuple[int, int, str]]) -> None:
        settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition("output", at, 0) for at in range(PARTITIONS)])
        self._seen = seen
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(500, 0.2):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None and isinstance(value, bytes):
                    assert partition is not None
                    assert offset is not None
                    self._seen.append((partition, offset, value.decode()))
        self._consumer.close()

    def stop(self) -> None:
        """Stop."""
        self._stopped.set()
        self._thread.join(END_S)
