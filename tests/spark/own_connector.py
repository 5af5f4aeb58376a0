"""Spark 4.0.0 with its own Kafka connector, in a separate environment, installed once by pip and Maven."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

from klamm.pipelines.bench.connector import ConnectorEnvironment
from tests.spark.jobs import Job

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KLAMM_SPARK_CONNECTOR", ROOT / "target" / "spark-4.0.0"))
ENVIRONMENT = ConnectorEnvironment(FOLDER)


class OwnConnector:
    """A process that runs jobs with Spark's own connector."""

    def __init__(self, output: Path) -> None:
        ENVIRONMENT.make()
        jars = ",".join(map(str, ENVIRONMENT.jars()))
        python = ENVIRONMENT.python
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PY", "SPARK"))}
        environment |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        self._output = output.open("wb")
        self._process = subprocess.Popen(
            [python, "-m", "tests.spark.jobs", jars],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
        )

    def run(self, job: Job) -> Any:
        """The result of a job there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job | {"format": "kafka"}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Spark's own connector ended, see {self._output.name}"
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._output.close()
