"""One SparkSession and one node for all tests of this folder, which run in one process: a JVM takes memory and time."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klamm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
JAVA_MIN = 17
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


def what_is_missing() -> str | None:
    """What of Spark's needs is not here."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'klamm[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return f"there is no java in PATH: install a JDK {JAVA_MIN} or newer"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"{java} is no Java {JAVA_MIN} or newer: {told.strip()}"
    return None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads that knows the data source."""
    missing = what_is_missing()
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from pyspark.sql import SparkSession

    from klamm.spark import KlammDataSource

    folder = tmp_path_factory.mktemp("spark")
    # The workers are processes of their own: they shall have this Python, and find klamm where this process has it.
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(klamm.__path__[0]).parent), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("klamm's tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder} -XX:TieredStopAtLevel=1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        session.dataSource.register(KlammDataSource)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        yield running


@pytest.fixture
def topic(cluster: klamm.Cluster) -> Callable[..., str]:
    """Makes topics that no other test uses."""

    def make(partitions: int = 1) -> str:
        name = f"topic-{next(_numbers)}"
        # The tests' timestamps are old.
        cluster.create_topic(name, partitions=partitions, config={"retention.ms": "-1"})
        return name

    return make
