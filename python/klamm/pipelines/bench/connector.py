"""Spark with its own Kafka connector, in a separate environment, installed once by pip and Maven."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from klamm.pipelines.errors import PipelineError

VERSION: Final = "4.0.0"
"""The only version with a complete connector on Maven: newer ones lack its token provider."""
POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
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
_MARK: Final = ".complete"
_TIMEOUT_S: Final = 3000


class EnvironmentMissingError(PipelineError):
    """Something that a side needs is missing; the message says what, and what to do."""


def default_folder() -> Path:
    """Where it is kept: in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "klamm" / f"spark-connector-{VERSION}"


class ConnectorEnvironment:
    """A Python with pyspark, and the connector's jars, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"

    @property
    def is_made(self) -> bool:
        """Whether it is completely installed."""
        return (self.folder / _MARK).exists()

    def jars(self) -> list[Path]:
        """The connector and its dependencies except Spark's."""
        return sorted((self.folder / "jars").glob("*.jar"))

    def make(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Install it; of concurrent callers, one does. Raises EnvironmentMissingError."""
        if self.is_made:
            return
        if missing := why_not():
            raise EnvironmentMissingError(missing)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_made:
                self._install(say)
                (self.folder / _MARK).touch()

    def _install(self, say: Callable[[str], None]) -> None:
        say(f"pip installs PySpark {VERSION} into {self.folder}, once")
        _execute(sys.executable, "-m", "venv", self.folder / "venv")
        _execute(self.python, "-m", "pip", "install", "-q", f"pyspark=={VERSION}")
        say(f"Maven fetches Spark's Kafka connector {VERSION} into {self.folder}, once")
        pom = self.folder / "pom.xml"
        pom.write_text(POM)
        copied = f"-DoutputDirectory={self.folder / 'jars'}"
        _execute("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", copied)


def why_not() -> str | None:
    """Why the environment cannot be installed; None when it can."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if not missing:
        return None
    return f"{' and '.join(missing)} not found in PATH: Spark's own connector needs a JDK 17 or newer, and Maven"


def _execute(*command: str | Path) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentMissingError(f"{_words(command)} took more than {_TIMEOUT_S} s") from None
    if done.returncode:
        last_lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise EnvironmentMissingError(f"{_words(command)} failed: {' / '.join(last_lines)}")


def _words(command: tuple[str | Path, ...]) -> str:
    return " ".join(map(str, command))
