"""The CPU time and memory of a process and its descendants, from Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EVERY_S: Final = 0.5
"""The system keeps the peak of a process for as long as it runs."""


class Process(NamedTuple):
    """A line of the process table. CPU in seconds, with that of its children that have ended."""

    pid: int
    parent: int
    name: str
    cpu: float


class ResourceUsage(NamedTuple):
    """The resource usage of a job. Memory in bytes."""

    cpu: float
    jvm_rss: int
    """The largest of the JVM."""
    worker_rss: int
    """The largest of any one Python worker; 0 without any."""
    watching: float
    """CPU that the watching took, in the process that watches."""


def processes() -> dict[int, Process]:
    """All that run."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (process := _read(int(entry.name))) is not None:
            found[process.pid] = process
    return found


def tree(root: int) -> list[Process]:
    """A process and all below it."""
    known = processes()
    return [process for process in known.values() if _is_below(process, root, known)]


def _is_below(process: Process | None, root: int, known: dict[int, Process]) -> bool:
    while process is not None and process.pid != root:
        process = known.get(process.parent)
    return process is not None


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name is in parentheses, and may have some itself.
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return Process(pid, int(rest[1]), name, sum(map(int, rest[11:15])) / _TICKS)


def peak_rss(pid: int) -> int:
    """The peak resident memory of a process since `forget_peak`; 0 when it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def forget_peak(pid: int) -> None:
    """Reset the peak."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


class Watch:
    """Measures the descendants of a process within the block; afterwards the result is in `used`.

    A process that starts and ends within the block, and whose parent does not wait for it, is not counted.
    """

    used: ResourceUsage

    def __init__(self, root: int) -> None:
        self._root = root
        self._peaks: dict[tuple[int, str], int] = {}
        self._watching = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_again, name="klamm-bench-watch", daemon=True)

    def __enter__(self) -> Self:
        found = tree(self._root)
        self._cpu = sum(process.cpu for process in found)
        for process in found:
            forget_peak(process.pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        found = self._look()
        cpu = sum(process.cpu for process in found) - self._cpu
        self.used = ResourceUsage(cpu, self._largest("java"), self._largest("worker"), self._watching)

    def _look_again(self) -> None:
        while not self._done.wait(_EVERY_S):
            self._look()
        self._watching = time.thread_time()

    def _look(self) -> list[Process]:
        found = tree(self._root)
        jvms = {process.pid for process in found if process.name == "java"}
        known = {process.pid: process for process in found}
        for process in found:
            kind = "java" if process.pid in jvms else _kind(process, jvms, known)
            key = process.pid, kind
            self._peaks[key] = max(self._peaks.get(key, 0), peak_rss(process.pid))
        return found

    def _largest(self, kind: str) -> int:
        return max((peak for (_, of), peak in self._peaks.items() if of == kind), default=0)


def _kind(process: Process, jvms: set[int], known: dict[int, Process]) -> str:
    below = any(_is_below(process, jvm, known) for jvm in jvms)
    return "worker" if below else "driver"
