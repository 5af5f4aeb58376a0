"""Programs and packages that only tests need: if one is missing, the test is skipped with a reason, and fails in CI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

BUILD = Path(__file__).resolve().parents[2] / "target" / "foreign"


def require(*programs: str) -> None:
    """Skip the test when a program is missing; in CI that is a failure."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        give_up(f"not installed: {', '.join(missing)}")


def require_package(*packages: str) -> None:
    """The same for Python packages; also for a whole module, when called at its top."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        give_up(f"not installed: {', '.join(missing)}")


def give_up(reason: str) -> NoReturn:
    """Skip the test because something is missing; in CI, where everything is installed, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = 120,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The output of a program, which must succeed."""
    done = subprocess.run(
        command,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=cwd,
        env=os.environ | dict(environment or {}),
    )
    assert done.returncode == 0, f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
