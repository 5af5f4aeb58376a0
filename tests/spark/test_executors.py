"""Executors in separate processes have only what Spark sends them from the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import REPOSITORY, python_of_workers
from tests.spark.producing import numbered, send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.usefixtures("java")
def test_separate_executors_read_and_write(bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> None:
    source, target = topic(4), topic(2)
    send(bootstrap, source, [one for partition in range(4) for one in numbered(250, partition, partition * 250)])
    python = str(python_of_workers(tmp_path))
    done = subprocess.run(
        [python, "-m", "tests.spark.executors_job", bootstrap, source, target],
        cwd=REPOSITORY,
        env=os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    tasks = json.loads(done.stdout.splitlines()[-1])
    assert sum(rows for _, rows in tasks) == 1000
    assert len(tasks) == 8
    assert len({executor for executor, _ in tasks}) == 2
    written = subprocess.run(
        [sys.executable, "-m", "klamm", "consume", target, "--bootstrap", bootstrap, "--count", "1000", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert len(written.stdout.splitlines()) == 1000
