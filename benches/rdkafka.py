"""librdkafka's own `rdkafka_performance`, built from the source in the crate `rdkafka-sys`.

Cargo fetches it, and the first use builds it with `configure` and `make` below `target/`. If that fails, the rows that
need it are left out.
"""

from __future__ import annotations

import fcntl
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benches.cells import GB, CellError, Figures, run_lines
from benches.servers import ROOT, Server

MANIFEST: Final = ROOT / "benches" / "librdkafka" / "Cargo.toml"
FOLDER: Final = ROOT / "target" / "librdkafka-2.12.1"
PROGRAM: Final = FOLDER / "examples" / "rdkafka_performance"
NEEDED: Final = ("cargo", "make", "cc")
WITHOUT: Final = tuple(f"--disable-{part}" for part in ("ssl", "gssapi", "curl", "zstd", "lz4-ext", "regex-ext"))
"""Features that a bench without TLS and compression does not need, and whose libraries may be missing."""
BUILD_TIMEOUT_S: Final = 900
PRODUCER: Final = ("-X", "linger.ms=5", "-X", "batch.size=1000000", "-X", "batch.num.messages=100000")
"""Batches as large as those of the bench's own load generator; other settings are the client's defaults."""


@functools.cache
def why_not() -> str | None:
    """Why `rdkafka_performance` is not available; None when it is. Builds it if necessary."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing and not PROGRAM.exists():
        return f"librdkafka cannot be built: {', '.join(missing)} not found"
    try:
        _build()
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().rpartition("\n")[2]
        return f"librdkafka cannot be built: {' '.join(error.cmd[:2])} exited {error.returncode}: {last}"
    except (OSError, LookupError, subprocess.TimeoutExpired) as error:
        return f"librdkafka cannot be built: {error}"
    return None


def _build() -> None:
    """Raises OSError, LookupError, CalledProcessError or TimeoutExpired."""
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / f"{FOLDER.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PROGRAM.exists():
            return
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(_source(), FOLDER)
        # The registry's archive has no file permissions.
        for script in (FOLDER / "configure", FOLDER / "lds-gen.py"):
            script.chmod(0o755)
        _run("./configure", *WITHOUT)
        _run("make", "-C", "src", "-j2", "librdkafka.a")
        _run("make", "-C", "examples", PROGRAM.name)


def _source() -> Path:
    cargo = ("cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", str(MANIFEST))
    packages = json.loads(_run(*cargo, folder=MANIFEST.parent))["packages"]
    crate = next(package for package in packages if package["name"] == "rdkafka-sys")
    source = Path(crate["manifest_path"]).parent / "librdkafka"
    if not (source / "configure").exists():
        raise LookupError(f"{source} is not librdkafka's source")
    return source


def _run(*command: str, folder: Path = FOLDER) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def produce(server: Server, topic: str, record: int, count: int) -> Figures:
    """Produce `count` records of `record` bytes with acks=all to partition 0. Raises CellError."""
    return _measured(server, record, count, "-P", "-t", topic, "-s", str(record), "-a", "-1", *PRODUCER)


def fetch(server: Server, topic: str, record: int, count: int) -> Figures:
    """Fetch the first `count` records of partition 0, which have `record` bytes each. Raises CellError."""
    return _measured(server, record, count, "-C", "-t", topic, "-o", "0")


def _measured(server: Server, record: int, count: int, *words: str) -> Figures:
    before = server.cpu_seconds()
    command = [str(PROGRAM), *words, "-p", "0", "-c", str(count), "-b", server.address, "-q"]
    lines = run_lines(command, f"rdkafka_performance {words[0]} on {server.kind}")
    cpu_seconds = server.cpu_seconds() - before
    done, milliseconds = result("\n".join(lines))
    if done < count:
        raise CellError(f"rdkafka_performance {words[0]} on {server.kind}: {done:,} of {count:,} records")
    gigabytes = count * record / GB
    return {"GB/s": gigabytes / (milliseconds / 1000), "CPU-s/GB": cpu_seconds / gigabytes}


def result(output: str) -> tuple[int, int]:
    """The number of delivered or consumed records, and the time in milliseconds. Raises CellError."""
    found = re.findall(r"(\d+) (?:delivered|messages \(\d+ bytes\) consumed) .*?in (\d+)ms", output)
    if not found:
        raise CellError(f"rdkafka_performance printed no result: {output.strip()[-500:]}")
    done, milliseconds = found[-1]
    return int(done), max(int(milliseconds), 1)
