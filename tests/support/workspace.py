"""Programs that `cargo test` builds with the Rust tests, and that Python tests run."""

from __future__ import annotations

import fcntl
import functools
import subprocess
from pathlib import Path

from tests.support.foreign import require

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target"


@functools.cache
def programs() -> Path:
    """The folder of the workspace's debug build, built when it is missing or out of date; `examples` is in it."""
    require("cargo")
    TARGET.mkdir(exist_ok=True)
    with (TARGET / ".programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The whole workspace, as `make test` has built it: building one package, which needs fewer features of other
        # crates, would recompile most of them.
        what = ["--workspace", "--no-run", "--locked", "--quiet", "--target-dir", str(TARGET)]
        subprocess.run(["cargo", "test", *what], check=True, cwd=ROOT)
    return TARGET / "debug"
