"""A stream from topic to topic, whose driver and executors are killed at random: every record is copied once.

`KLAMM_SINK_KILLS` is the number of kills; `KLAMM_SINK_SEED` determines which processes, and approximately when.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import apache_kafka
from tests.spark.conftest import REPOSITORY, python_of_workers
from tests.spark.exactly_once import CLUSTER_ID, committed, make
from tests.spark.producing import Sent, send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PARTITIONS = 4
RECORDS = 12_000
ROWS_PER_BATCH = 400
KILLS = int(os.environ.get("KLAMM_SINK_KILLS", "12"))
STEP_S = 600.0


class Job:
    """A driver with two executors, in a process session of their own."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def ended(self) -> int | None:
        """The exit code of the driver's Python."""
        return self._process.poll()

    def executors(self) -> list[int]:
        """The JVMs that run tasks."""
        return [one for one in self._processes() if "CoarseGrainedExecutorBackend" in command_of(one)]

    def kill_driver(self) -> None:
        """Kill its JVM and its Python; the executors notice by themselves."""
        for one in self._processes():
            if "org.apache.spark.deploy.SparkSubmit" in command_of(one):
                kill(one)
        kill(self._process.pid)
        self._process.wait(60)

    def sweep(self) -> None:
        """Kill the remaining processes."""
        for one in self._processes():
            kill(one)
        self._process.wait(60)

    def _processes(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid:
                    yield int(entry.name)


def command_of(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


def test_every_record_is_copied_once(java: None, tmp_path: Path) -> None:
    seed = int(os.environ.get("KLAMM_SINK_SEED", str(random.randrange(10**6))))
    print(f"KLAMM_SINK_SEED={seed}")
    rng = random.Random(seed)
    with apache_kafka.running(tmp_path / "kafka", CLUSTER_ID) as node:
        for topic in ("source", "target"):
            make(node.bootstrap, topic, PARTITIONS)
        rows = (Sent(b"%d" % at, partition=at % PARTITIONS) for at in range(RECORDS))
        send(node.bootstrap, "source", rows)
        jobs = run_under_fire(tmp_path, node.bootstrap, rng)
        found = committed(node.bootstrap, "target", PARTITIONS)
    expected = [[b"%d" % at for at in range(first, RECORDS, PARTITIONS)] for first in range(PARTITIONS)]
    for partition in range(PARTITIONS):
        assert found[partition] == expected[partition], f"seed {seed}, {jobs} drivers, partition {partition}"


def run_under_fire(folder: Path, bootstrap: str, rng: random.Random) -> int:
    """Restart the job until it completes; returns the number of drivers."""
    python, checkpoint, output = str(python_of_workers(folder)), folder / "state", folder / "job.out"
    command = [python, "-m", "tests.spark.exactly_once_job", bootstrap, "source", "target", str(checkpoint)]
    command += ["--master", "local-cluster[2,1,1024]", "--rows-per-batch", str(ROWS_PER_BATCH), "--speculation"]
    environment = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[Job] = []
    left = KILLS
    try:
        while True:
            started.append(Job(command, environment, output))
            left = shoot(started[-1], checkpoint / "commits", left, rng)
            if started[-1].ended == 0:
                print(f"{len(started)} drivers, {KILLS - left} kills")
                assert left == 0, "it came to its end before everything happened: give it more records"
                return len(started)
            assert len(started) <= 3 * KILLS + 3, output.read_text()[-4000:]
    finally:
        for job in started:
            job.sweep()


def shoot(job: Job, commits: Path, left: int, rng: random.Random) -> int:
    """Kill a process whenever the stream has progressed, until the driver is dead; returns how many kills are left."""
    while left and wait_for_commit(job, commits):
        # At a random time in the following batches.
        time.sleep(rng.uniform(0, 4))
        executors = job.executors()
        left -= 1
        if not executors or rng.random() < 0.5:
            job.kill_driver()
            return left
        kill(rng.choice(sorted(executors)))
    deadline = time.monotonic() + STEP_S
    while job.ended is None:
        assert time.monotonic() < deadline, "the stream does not end"
        time.sleep(0.1)
    return left


def wait_for_commit(job: Job, commits: Path) -> bool:
    """Wait until another batch is committed; False if the driver ended first."""
    before, deadline = batches(commits), time.monotonic() + STEP_S
    while batches(commits) == before:
        if job.ended is not None:
            return False
        assert time.monotonic() < deadline, "the stream does not get on"
        time.sleep(0.05)
    return True


def batches(commits: Path) -> set[str]:
    return {entry.name for entry in commits.iterdir() if entry.name.isdigit()} if commits.is_dir() else set()
