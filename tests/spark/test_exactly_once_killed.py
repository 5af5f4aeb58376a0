"""Tasks and drivers of exactly-once streams are killed and stopped at random with real signals: each row exists once.

Forked processes, one per task, replace Spark, which takes a hundredth of the time. `KLAMM_SINK_SEED` replays a run.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.exactly_once import Query, committed, make
from tests.support.node_process import NodeProcess

if TYPE_CHECKING:
    from klamm.spark.sink.sink_exactly_once import Delivered

pytestmark = pytest.mark.timeout(3600)
TASKS = 3
SEED = int(os.environ.get("KLAMM_SINK_SEED", str(random.SystemRandom().randrange(1 << 30))))


class DriverDied(Exception):
    """The run is over, although its tasks may be running; the next run begins with the same batch."""


class Process:
    """A fork that does one thing and sends the result, unless it is killed."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._results, sending = os.pipe()
        self.process_id = os.fork()
        if self.process_id == 0:
            result = None
            with contextlib.suppress(Exception):
                result = action()
            os.write(sending, pickle.dumps(result))
            os._exit(0)
        os.close(sending)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process_id, number)

    def wait(self, within_s: float | None = None) -> bool:
        """Whether it has ended or sent a result."""
        return bool(select.select([self._results], [], [], within_s)[0])

    def result(self) -> Any:
        """None when it failed or was killed."""
        with os.fdopen(self._results, "rb") as results:
            result = results.read()
        os.waitpid(self.process_id, 0)
        return pickle.loads(result) if result else None


@dataclass
class Fire:
    """A driver that runs the tasks of one batch after the other, and the faults."""

    query: Query
    rng: random.Random
    runs: int = 1
    task_s: float = 0.1
    """The duration of an undisturbed task."""
    stopped: list[Process] = field(default_factory=list)
    """Executors that were considered lost, and resume later."""

    def batch(self, number: int, rows: list[list[bytes]]) -> None:
        """Repeat the batch until it is complete."""
        while True:
            try:
                self._attempt(number, rows)
            except DriverDied:
                self.runs += 1
            else:
                return

    def _attempt(self, number: int, rows: list[list[bytes]]) -> None:
        messages = [self._task(number, partition, rows[partition]) for partition in self._shuffled()]
        ending = Process(lambda: self.query.finish(*messages) or "done")
        fate = self.rng.random()
        if fate < 0.4:
            ending.wait(self.rng.uniform(0, self.task_s))
            ending.signal(signal.SIGKILL if fate < 0.2 else signal.SIGSTOP)
        if 0.2 <= fate < 0.4:
            self.stopped.append(ending)
            raise DriverDied
        if ending.result() is None or self.rng.random() < 0.2:
            raise DriverDied

    def _shuffled(self) -> Iterator[int]:
        yield from self.rng.sample(range(TASKS), TASKS)

    def _task(self, number: int, partition: int, values: list[bytes]) -> Delivered:
        """Retry the task until it is done or the driver dies."""
        task = self.query.task(partition, number, f"run{self.runs}")
        while True:
            began = time.monotonic()
            process = Process(lambda: self.query.write(task, *values, partition=partition))
            fate = self.rng.random()
            if fate < 0.4:
                process.wait(self.rng.uniform(0, 1.2 * self.task_s))
                process.signal(signal.SIGKILL if fate < 0.25 else signal.SIGSTOP)
            if 0.25 <= fate < 0.4:
                self.stopped.append(process)
                message = None
            else:
                message = process.result()
            if message is not None:
                self.task_s = time.monotonic() - began
            self._let_one_go_on()
            if self.rng.random() < 0.08:
                raise DriverDied
            if message is not None:
                return message

    def _let_one_go_on(self) -> None:
        if self.stopped and self.rng.random() < 0.5:
            process = self.stopped.pop(self.rng.randrange(len(self.stopped)))
            process.signal(signal.SIGCONT)
            process.result()

    def end(self) -> None:
        """End every process that could still write."""
        for process in self.stopped:
            process.signal(signal.SIGCONT)
            process.result()


@pytest.fixture(params=["Apache Kafka", "klamm"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a broker. klamm runs in its own process, because forks of this one are tasks."""
    if request.param == "klamm":
        with NodeProcess(tmp_path / "data") as node:
            yield node.bootstrap
    else:
        yield request.getfixturevalue("secured_kafka").bootstrap


@pytest.mark.parametrize("batches", [5, pytest.param(400, marks=pytest.mark.slow)])
def test_every_row_is_written_once(java: None, kafka: str, batches: int) -> None:
    print(f"KLAMM_SINK_SEED={SEED}")
    target = f"killed-{batches}"
    make(kafka, target, TASKS)
    fire = Fire(Query(kafka, target, target), random.Random(SEED))
    for number in range(batches):
        fire.batch(number, [[b"%d-%d" % (number, at) for at in range(task + 1)] for task in range(TASKS)])
    fire.end()
    found = committed(kafka, target, TASKS)
    for task in range(TASKS):
        expected = [b"%d-%d" % (number, at) for number in range(batches) for at in range(task + 1)]
        assert found[task] == expected, f"KLAMM_SINK_SEED={SEED}, {fire.runs} runs"
