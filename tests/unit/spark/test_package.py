"""The package without pyspark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.foreign import require_package

import klamm.spark


def test_options_and_offsets_need_no_pyspark() -> None:
    modules = "klamm.spark, klamm.spark.options.options, klamm.spark.ranges.offsets"
    code = f"import sys, {modules}; print('pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"


def test_without_pyspark_the_error_names_the_package_to_install() -> None:
    # In a new process, because parts of pyspark that another test imported would be found.
    code = "import sys; sys.modules['pyspark'] = None; import klamm.spark; klamm.spark.KlammDataSource"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: klamm's Spark source needs pyspark: pip install 'klamm[spark]'" in done.stderr


PLANNED = """
import sys
from pyspark.sql.types import BinaryType, StructType
from klamm.spark import KlammDataSource
options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}
KlammDataSource(options).streamReader(StructType().add("value", BinaryType()))
print(*sorted(name for name in sys.modules if name.startswith("klamm.spark.")))
"""


def test_planning_a_stream_imports_neither_decoders_nor_modules_of_tasks() -> None:
    # Spark starts a process for each stream, and waits for it.
    require_package("pyspark")
    said = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, check=True).stdout
    imported = {name.removeprefix("klamm.spark.") for name in said.split()}
    assert {"reading.stream", "ranges.range_partition"} <= imported
    assert not imported & {"reading.reader", "reading.decoding", "sink.sink", "formats.planning", "formats.registry"}


def test_an_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = klamm.spark.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("installed", "is_supported"),
    [("3.5.6", False), ("4.1.1", False), ("4.2.0", True), ("4.3.0.dev1", True), ("5.0.0", False)],
)
def test_another_pyspark_is_refused_with_both_versions(installed: str, is_supported: bool) -> None:
    require_package("pyspark")
    code = f"import pyspark; pyspark.__version__ = '{installed}'; import klamm.spark; klamm.spark.KlammDataSource"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if is_supported:
        assert done.returncode == 0, done.stderr
    else:
        last = done.stderr.splitlines()[-1]
        assert f"works with PySpark 4.2 or newer, below 5; {installed} is installed" in last


def test_the_supported_versions_are_those_of_the_extra() -> None:
    from klamm.spark.supported import PYSPARK_BELOW, PYSPARK_MIN

    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
    low, high = (".".join(map(str, version)) for version in (PYSPARK_MIN, PYSPARK_BELOW))
    assert f"pyspark>={low},<{high}" in project["optional-dependencies"]["spark"]
