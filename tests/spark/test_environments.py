"""Each part of `docs/spark/environments.md` runs as it is, with a node elsewhere than at localhost:9092."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.conftest import REPOSITORY
from tests.spark.packages import by_maven, by_pip
from tests.spark.producing import numbered, send

PAGE = (REPOSITORY / "docs" / "spark" / "environments.md").read_text()
NOTEBOOK = REPOSITORY / "examples" / "spark" / "orders.ipynb"
SMALL = {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.master": "local[1]"}
needs_downloads = pytest.mark.slow
"""Hundreds of MB, downloaded once."""


@pytest.fixture
def orders(bootstrap: str, topic: Callable[..., str]) -> str:
    name = topic(2)
    send(bootstrap, name, numbered(3) + numbered(4, 1, 3))
    return name


def part(heading: str) -> str:
    """The Python code under a heading."""
    [text] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(code)


def at(code: str, bootstrap: str, name: str) -> str:
    """The same code for this node and this topic."""
    assert "localhost:9092" in code
    return code.replace("localhost:9092", bootstrap).replace('"subscribe": "orders"', f'"subscribe": "{name}"')


def run_job(folder: Path, code: str, *command: str, packages: tuple[Path, ...] = (), **conf: str) -> str:
    """The last line that a job in its own process prints."""
    job = folder / "job.py"
    job.write_text(code)
    (folder / "conf").mkdir()
    settings = SMALL | conf
    (folder / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    env = {key: text for key, text in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder / "conf"), "PYSPARK_PYTHON": sys.executable}
    env["PYTHONPATH"] = os.pathsep.join(map(str, packages))
    words = command or (sys.executable,)
    done = subprocess.run(
        [*words, str(job)], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.usefixtures("spark")
def test_the_reason_of_a_failure(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(part("A script").replace("localhost:9092", bootstrap), "environments.md", "exec"), {"__name__": "job"})
    printed = capsys.readouterr().out.strip()
    [promised] = re.findall(r"It prints `(.*?)`", PAGE, re.DOTALL)
    assert printed == promised.replace("\n", " ")


@pytest.mark.usefixtures("spark")
def test_jupyter(bootstrap: str, orders: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells):
        code = "".join(cell["source"])
        code = at(code, bootstrap, orders) if "localhost" in code else code
        exec(compile(code, f"cell {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "|        0|     2|" in said
    assert re.search(r"\|\s*7\|\n\+-+\+\n*\Z", said), said


@pytest.mark.usefixtures("java")
def test_spark_submit_and_py_files(bootstrap: str, orders: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("shop.py", "def price(value):\n    return int(value)\n")
    code = at(part("spark-submit and --py-files"), bootstrap, orders)
    [line] = re.findall(r"^venv/bin/(spark-submit .*) job\.py$", PAGE, re.MULTILINE)
    program, *words = shlex.split(line.replace("local[2]", "local[1]"))
    assert run_job(tmp_path, code, str(Path(sys.executable).with_name(program)), *words) == str(sum(range(7)))


@needs_downloads
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("java")
def test_spark_connect(bootstrap: str, orders: str, tmp_path: Path) -> None:
    wanted = ("pandas>=2.2", "grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard")
    packages = by_pip("connect", *wanted)
    code = at(part("Spark Connect"), bootstrap, orders).replace("local[2]", "local[1]")
    assert run_job(tmp_path, code, packages=(packages,)) == "0"


@needs_downloads
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("java")
def test_delta(bootstrap: str, orders: str, tmp_path: Path) -> None:
    code = at(part("Delta"), bootstrap, orders)
    [artifact] = re.findall(r'"spark.jars.packages", "(.*?)"', code)
    jars = ",".join(map(str, by_maven("delta", artifact)))
    code = code.replace(f'"spark.jars.packages", "{artifact}"', f'"spark.jars", "{jars}"')
    [version] = re.findall(r'`pip install "(pyspark==\S+)"`', PAGE)
    pyspark = by_pip("pyspark-4.2", version, options=("--no-deps",))
    assert run_job(tmp_path, code, packages=(pyspark,)) == "7"


@needs_downloads
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("java")
def test_iceberg(bootstrap: str, orders: str, tmp_path: Path) -> None:
    packages = by_pip("iceberg", "pyiceberg[sql-sqlite]")
    assert run_job(tmp_path, at(part("Iceberg"), bootstrap, orders), packages=(packages,)) == "7"
