"""`venv/bin/python job.py`, without the environment being activated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import REPOSITORY
from tests.spark.producing import numbered, send

JOB = Path(__file__).with_name("plain_job.py")
STARVED = "Timed out while waiting for the Python worker to connect back"
ATTEMPTS = 3


def run_job(tmp_path: Path, bootstrap: str, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with an unusable `python3` in the PATH.

    Spark gives a worker 10 s to start, which may not suffice on a busy machine: the job is repeated then.
    """
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'another Python' >&2; exit 1\n")
    other.chmod(0o755)
    env = {key: text for key, text in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"PATH": f"{other.parent}:{env['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(REPOSITORY)}
    for attempt in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, str(JOB), bootstrap, name, str(tmp_path / f"checkpoint-{attempt}")],
            cwd=tmp_path,
            env=env | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if STARVED not in done.stderr:
            break
    return done


@pytest.mark.usefixtures("java")
def test_workers_are_the_python_that_runs_the_job(bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic()
    send(bootstrap, name, numbered(3))
    done = run_job(tmp_path, bootstrap, name)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"{sys.executable} 3 3"
    # One for the batch query and one for the stream.
    warning = "these options have no effect for klamm's Spark source: kafka.max.poll.records"
    assert [line for line in done.stderr.splitlines() if "no effect" in line] == [warning] * 2


@pytest.mark.usefixtures("java")
def test_a_python_chosen_by_the_user_is_kept(bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> None:
    done = run_job(tmp_path, bootstrap, topic(), PYSPARK_PYTHON=str(tmp_path / "bin" / "python3"))
    assert done.returncode != 0
    assert "another Python" in done.stderr
