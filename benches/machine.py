"""The machine and the versions of a run, without which its figures are meaningless."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benches.servers import ROOT
from klamm._engine import __version__


def describe() -> dict[str, object]:
    """Machine, versions and commit of this run."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "commit": _output("git", "rev-parse", "HEAD"),
        "commit_has_changes": bool(_output("git", "status", "--porcelain", "--untracked-files=no")),
        "machine": platform.machine(),
        "cpu": _first(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo")),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_kib": _first(r"MemTotal:\s*(\d+)", Path("/proc/meminfo")),
        "load_average": os.getloadavg(),
        "kernel": platform.release(),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "python": platform.python_version(),
        "klamm": __version__,
        "kafka": "4.3.1",
        "java": (_output("java", "-version") or "").partition("\n")[0],
        "rustc": _output("rustc", "--version"),
        "aiokafka": _version("aiokafka"),
    }


def prepare() -> None:
    """Give the nodes of this process what an installed node has: the open-files limit, and compiled modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        return None
    return (done.stdout or done.stderr).strip()


def _first(pattern: str, path: Path) -> str | None:
    found = re.search(pattern, path.read_text()) if path.exists() else None
    return found[1] if found else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
