"""One SparkSession and one node for all tests of this folder, which share a process to save memory and time."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from tests.interop.secured_kafka import SecuredKafka, running
from tests.support.foreign import give_up, require

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
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


def what_is_missing() -> str | None:
    """What Spark needs and is missing."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'klamm[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return f"there is no java in PATH: install a JDK {JAVA_MIN} or newer"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"{java} is no Java {JAVA_MIN} or newer: {output.strip()}"
    return None


def python_of_workers(folder: Path) -> Path:
    """A command that runs this Python with this process's klamm.

    It drops the zip that Spark puts first in the path: each worker would compile pyspark from it, which takes a second
    of CPU, and the planner of a stream must start within 10.
    """
    paths = [str(Path(klamm.__path__[0]).parent), str(REPOSITORY)]
    command = folder / "python"
    path, python = shlex.quote(os.pathsep.join(paths)), shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} "$@"\n')
    command.chmod(0o755)
    return command


@pytest.fixture(scope="session")
def java() -> None:
    """Skips the test when something that Spark needs is missing; in CI it fails."""
    if missing := what_is_missing():
        give_up(missing)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads and the data source."""
    from pyspark.sql import SparkSession

    from klamm.spark import KlammDataSource

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(python_of_workers(folder)))
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
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
def bootstrap() -> Iterator[str]:
    """The address of a node. With `KLAMM_TEST_BOOTSTRAP`, the tests run against another broker, e.g. Kafka."""
    given = os.environ.get("KLAMM_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with klamm.Cluster() as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A node of Apache Kafka with a listener for each security protocol."""
    require("java", "mvn", "openssl")
    with running(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.fixture(scope="session")
def kafka(secured_kafka: SecuredKafka) -> str:
    """A node of Apache Kafka."""
    return secured_kafka.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> Callable[..., str]:
    """Creates topics that no other test uses."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(partitions: int = 1) -> str:
        name = f"topic-{os.getpid()}-{next(_numbers)}"
        # The records of the tests have old timestamps.
        wanted = NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        admin.create_topics([wanted])[name].result(60)
        return name

    return make
