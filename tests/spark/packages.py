"""Packages and jars that only the documentation's examples need, fetched once into `target`."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.conftest import REPOSITORY
from tests.support.foreign import require

ROOT = REPOSITORY / "target" / "spark-packages"
_MARK = ".complete"
_TIMEOUT_S = 1500


def by_pip(name: str, *requirements: str, options: tuple[str, ...] = ("--only-binary", ":all:")) -> Path:
    """A folder for PYTHONPATH with these packages."""
    with _once(name) as folder:
        if folder is not None:
            command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(folder), *requirements]
            subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    return ROOT / name


def by_maven(name: str, artifact: str) -> list[Path]:
    """The jars of `group:artifact:version` and its dependencies except Spark's. Needs `mvn`."""
    require("mvn")
    with _once(name) as folder:
        if folder is not None:
            pom = folder / "pom.xml"
            pom.write_text(_pom(*artifact.split(":")))
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
            subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    return sorted((ROOT / name).glob("*.jar"))


@contextmanager
def _once(name: str) -> Iterator[Path | None]:
    """Yields the folder to fill to one of several concurrent callers; None if it is complete."""
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _MARK).exists():
            yield None
            return
        yield folder
        (folder / _MARK).touch()


def _pom(group: str, artifact: str, version: str) -> str:
    """A POM that excludes the dependencies that Spark provides."""
    excluded = "".join(
        f"<exclusion><groupId>{one}</groupId><artifactId>*</artifactId></exclusion>"
        for one in ("org.apache.spark", "org.apache.hadoop", "org.apache.logging.log4j", "com.fasterxml.jackson.core")
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klamm</groupId>
  <artifactId>spark-packages</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <exclusions>{excluded}</exclusions>
    </dependency>
  </dependencies>
</project>
"""
