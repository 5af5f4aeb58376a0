"""The cells of the table: each measures one kind of server, and returns a mapping of figures."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benches.servers import Bench, Server, program

Figures = Mapping[str, float]
"""The name of a figure ends with its unit."""
Cell = Callable[[Bench, str], Figures]
GB: Final = 1_000_000_000
LOAD_TIMEOUT_S: Final = 300
BLOCK: Final = bytes(1 << 20)


class CellError(RuntimeError):
    """A cell could not be measured; the message contains the failed command and the reason."""


def load(server: Server, mode: str, **options: object) -> dict[str, float]:
    """The figures of the load generator (benches/load/src/bin/load/main.rs). Raises CellError."""
    words = [f"{key}={value}" for key, value in options.items()]
    return run_json([*load_command(server, mode), *words], f"klamm-load {mode} on {server.kind}")


def load_command(server: Server, mode: str) -> list[str]:
    """The command line without options."""
    return [program("klamm-load"), mode, f"address={server.address}", f"pid={server.pid}"]


def run_json(command: list[str], what: str, timeout_s: float = LOAD_TIMEOUT_S) -> dict[str, float]:
    """The JSON object that a command prints. Raises CellError."""
    figures: dict[str, float] = json.loads("".join(run_lines(command, what, timeout_s)))
    return figures


def run_lines(command: list[str], what: str, timeout_s: float = LOAD_TIMEOUT_S) -> list[str]:
    """The lines that a command prints. Raises CellError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise CellError(f"{what} did not end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise CellError(f"{what} exited {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout.splitlines()


def settle(bench: Bench) -> None:
    """Wait until write-back of earlier cells is complete and the page cache is backed by memory of the virtual machine.

    Either changes a produce figure by a factor of three.
    """
    if not bench.settle_bytes:
        return
    os.sync()
    path = bench.folder / "page-cache"
    with path.open("wb", buffering=0) as file:
        for _ in range(bench.settle_bytes // len(BLOCK)):
            file.write(BLOCK)
    path.unlink()


def cool(folder: Path) -> int:
    """Drop a folder's files from the page cache; returns their size in bytes."""
    size = 0
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size += path.stat().st_size
    return size
