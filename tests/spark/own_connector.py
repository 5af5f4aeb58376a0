"""Spark 4.0.0 with its own Kafka connector, in an environment of its own: by pip and Maven, made once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.spark.jobs import Job

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KLAMM_SPARK_CONNECTOR", ROOT / "target" / "spark-4.0.0"))
MARK = FOLDER / ".complete"
VERSION = "4.0.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klamm</groupId>
  <artifactId>spark-connector</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{VERSION}</version>
      <exclusions>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>spark-sql_2.13</artifactId></exclusion>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>spark-core_2.13</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


def why_not() -> str | None:
    """What is missing to make the environment; None when nothing is."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"{missing[0]} is not installed" if missing else None


def make() -> None:
    """Install it, by one of those who ask at once."""
    if MARK.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if MARK.exists():
            return
        execute(sys.executable, "-m", "venv", FOLDER / "venv")
        execute(FOLDER / "venv" / "bin" / "python", "-m", "pip", "install", "-q", f"pyspark=={VERSION}")
        (FOLDER / "pom.xml").write_text(POM)
        copied = f"-DoutputDirectory={FOLDER / 'jars'}"
        execute("mvn", "-q", "-B", "-f", FOLDER / "pom.xml", "dependency:copy-dependencies", copied)
        MARK.touch()


def execute(*command: str | Path) -> None:
    """Run a command to its end."""
    subprocess.run(command, check=True, timeout=3000, stdin=subprocess.DEVNULL)


class OwnConnector:
    """A process that runs jobs over Spark's own connector."""

    def __init__(self, output: Path) -> None:
        make()
        jars = ",".join(str(jar) for jar in sorted((FOLDER / "jars").glob("*.jar")))
        python = FOLDER / "venv" / "bin" / "python"
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
        """What a job gives there."""
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
