"""Foreign programs that tests drive: a missing one skips with a line, and fails where CI runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "target" / "foreign"


def require(*programs: str) -> None:
    """Skip the test when a program is missing; under CI that is a failure."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = 120,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The output of a program that must succeed."""
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
