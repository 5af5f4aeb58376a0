"""One side of the comparison: a process with a Spark of its own that runs jobs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import klamm
from klamm.pipelines.bench import spark_program
from klamm.pipelines.bench.connector import ConnectorEnvironment
from klamm.pipelines.bench.process_tree import ResourceUsage, Watch
from klamm.pipelines.errors import PipelineError
from klamm.pipelines.session import workers_environment
from klamm.spark.failures import reason

_STOP_S: Final = 60
_TRIES: Final = 5
_TOO_LATE: Final = "Python worker failed to connect back"


class SideFailedError(PipelineError):
    """A side's process ended before its job did."""


@dataclass(frozen=True, slots=True)
class Started:
    """How a side is started."""

    name: str
    """As the report has it: ours, connector or engine."""
    format: str
    """The data source of its jobs."""
    python: Path
    config: Mapping[str, str]
    has_klamm: bool = False
    """Whether its Python has this process's klamm."""


def ours(config: Mapping[str, str]) -> Started:
    """klamm's source and sink, in this Python's environment."""
    return Started("klamm", "klamm", Path(sys.executable), config, has_klamm=True)


def engine(config: Mapping[str, str]) -> Started:
    """Spark's engine alone, in the same environment."""
    return Started("engine", "engine", Path(sys.executable), config, has_klamm=True)


def connector(config: Mapping[str, str], environment: ConnectorEnvironment) -> Started:
    """Spark's own Kafka connector."""
    jars = ",".join(map(str, environment.jars()))
    return Started("connector", "kafka", environment.python, {**config, "spark.jars": jars})


class Side:
    """The running process. `versions` has those of Spark and Java."""

    def __init__(self, started: Started, log: Path) -> None:
        """`log`: where its stderr goes, in a folder of this comparison's own. Raises SideFailedError."""
        self.name, self.format = started.name, started.format
        self._log = log
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PY", "SPARK"))}
        environment |= {"PYSPARK_PYTHON": str(started.python), "SPARK_LOCAL_IP": "127.0.0.1"}
        if started.has_klamm:
            environment |= {"PYTHONPATH": str(Path(klamm.__path__[0]).parent)} | workers_environment(log.parent)
        settings = json.dumps({"format": started.format, "config": dict(started.config)})
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                # -P: the program's own folder has modules that only look like those of others.
                [started.python, "-P", spark_program.__file__, settings],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            self.versions: dict[str, str] = self._answer()
        except BaseException:  # also Ctrl-C: the caller has nothing to close
            self.close()
            raise

    def run(self, job: Mapping[str, Any]) -> tuple[dict[str, Any], ResourceUsage]:
        """The result of a job, and its resource usage. Raises SideFailedError."""
        for _ in range(_TRIES):
            answer, used = self._run(job)
            # On a busy machine what plans a stream may not be there within Spark's fixed 10 s: nothing was done.
            if _TOO_LATE not in answer.get("error", ""):
                break
        else:
            raise SideFailedError(
                f"{job['kind']} of side {self.name}: this machine is too busy for Spark's fixed 10 s "
                f"in which a Python process must be there; {_TRIES} tries failed"
            )
        if "error" in answer:
            raise SideFailedError(f"{job['kind']} of side {self.name}: {reason(SideFailedError(answer['error']))}")
        return answer, used

    def _run(self, job: Mapping[str, Any]) -> tuple[dict[str, Any], ResourceUsage]:
        assert self._process.stdin is not None
        with Watch(self._process.pid) as watch:
            try:
                self._process.stdin.write(json.dumps({**job, "format": self.format}) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._ended() from None
            answer = self._answer()
        return answer, watch.used

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> SideFailedError:
        self._process.wait()
        with self._log.open(errors="replace") as errors:
            last = [text for line in deque(errors, 200) if (text := line.strip()) and not text.startswith("at ")]
        why = " / ".join(last[-3:]) or f"exit code {self._process.returncode}"
        return SideFailedError(f"Spark of side {self.name} ended: {why}")

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # of a job that it was not there to take
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
