"""`make dist` creates a source distribution that builds, and one abi3 wheel that works without Rust."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.support.foreign import give_up
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.wheel, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path, path: str) -> str:
    """The command's output; `path` is its PATH, and variables of this environment are removed."""
    environment = {"PATH": path, "HOME": os.environ["HOME"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of `make dist`: a source distribution, and a wheel built from it. Compiled dependencies are reused."""
    if shutil.which("cargo") is None or shutil.which("make") is None:
        give_up("cargo and make are needed to build the wheel")
    folder = tmp_path_factory.mktemp("dist")
    shown = run("make", "dist", f"DIST={folder}", f"VENV={sys.prefix}", cwd=ROOT, path=os.environ["PATH"])
    assert sys.platform != "linux" or "is consistent with" in shown
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel."""
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel and its dependencies only."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    run(*install, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=folder, path="/usr/bin:/bin")
    run(*install, "--no-index", wheel, cwd=folder, path="/usr/bin:/bin")
    return python


def test_one_wheel_serves_every_python_from_3_11(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    stubs = {f"klamm/_engine/{file.name}" for file in (ROOT / "python" / "klamm" / "_engine").glob("*.pyi")}
    assert "klamm/_engine/__init__.pyi" in stubs
    assert {"klamm/_engine.abi3.so", "klamm/py.typed"} | stubs <= names
    assert not [name for name in names if name.startswith(("tests/", "benches/"))]


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux tags and auditwheel are Linux's")
def test_its_tag_is_the_lowest_that_auditwheel_allows(wheel: Path) -> None:
    shown = run(sys.executable, "-m", "auditwheel", "show", "--json", wheel, cwd=wheel.parent, path=os.environ["PATH"])
    tag = json.loads(shown)["overall_tag"]
    assert tag.startswith("manylinux_2_")
    assert wheel.name.endswith(f"-{tag}.whl")


def test_the_engine_has_no_symbols(wheel: Path) -> None:
    """They would make it seven times as large."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo("klamm/_engine.abi3.so").file_size < 16 * 2**20


def metadata_of(wheel: Path) -> Message:
    """The metadata that PyPI and pip read."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_project_urls_lead_to_the_page_of_the_package(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Source"} <= urls.keys()
    assert {url.partition("#")[0] for url in urls.values()} == {f"https://pypi.org/project/{metadata['Name']}/"}


def test_the_classifiers_name_every_supported_python(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    classifiers = metadata.get_all("Classifier", [])
    assert metadata["Requires-Python"] == ">=3.11"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(classifiers)


def test_the_source_distribution_has_every_source_of_the_wheel(dist: Path) -> None:
    """pip builds it where no wheel fits, from all crates of the engine, the lock file, the package and the licence."""
    (archive,) = dist.glob("klamm-*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    sources = [ROOT / name for name in ("Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "pyproject.toml")]
    left_out = {ROOT / "rust" / "fuzz"}
    for crate in (file.parent for file in (ROOT / "rust").glob("*/Cargo.toml") if file.parent not in left_out):
        sources += [crate / "Cargo.toml", *(crate / "src").rglob("*.rs")]
    for kind in ("*.py", "*.pyi", "py.typed"):
        sources += (ROOT / "python" / "klamm").rglob(kind)
    assert {file.relative_to(ROOT).as_posix() for file in sources} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_it_works_without_rust(clean_python: Path, tmp_path: Path) -> None:
    script = "import klamm._engine.records; print(klamm._engine.__version__)"
    assert run(clean_python, "-c", script, cwd=tmp_path, path="/nowhere").strip() == "0.1.0"


def test_a_node_runs_from_it(clean_python: Path, tmp_path: Path) -> None:
    klamm = clean_python.parent / "klamm"
    port = free_port()
    command = [str(klamm), "start", "--data", str(tmp_path / "data"), "--port", str(port)]
    with subprocess.Popen(command, env={"PATH": "/nowhere"}, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            assert node.stdout.readline().startswith("klamm 0.1.0, cluster ")
            where = ("--bootstrap", f"localhost:{port}")
            run(klamm, "produce", "greetings", "hello", *where, cwd=tmp_path, path="/nowhere")
            assert run(klamm, "consume", "greetings", *where, cwd=tmp_path, path="/nowhere") == "hello\n"
        finally:
            node.terminate()
    assert node.returncode == 0
