"""Three processes of klamm.raft that print their events as lines of JSON, and can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

from tests.support.ports import free_port
from tests.support.waiting import wait_until

BOUND_S = 60.0
NODE_IDS = (1, 2, 3)


class RaftProcesses:
    """Each runs `program directory node_id voters more...`; `on_event(node_id, event)` is called on threads."""

    def __init__(self, folder: Path, program: Path, on_event: Callable[[int, list[Any]], None]) -> None:
        self._folder, self._program, self._on_event = folder, program, on_event
        self._voters = json.dumps({node_id: f"127.0.0.1:{free_port()}" for node_id in NODE_IDS})
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self.leader: int | None = None
        """The last one that printed ["lead", true]."""

    def start(self, node_id: int, *more: str) -> None:
        """Start one of them, for the first time or again."""
        directory = str(self._folder / str(node_id))
        with open(self._folder / f"{node_id}.err", "ab") as errors:
            process = subprocess.Popen(
                [sys.executable, str(self._program), directory, str(node_id), self._voters, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._processes[node_id] = process
        reader = threading.Thread(target=self._read, args=(node_id, process.stdout))
        reader.start()
        self._readers.append(reader)

    def _read(self, node_id: int, lines: IO[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                return  # killed during a write
            event = json.loads(line)
            if event == ["lead", True]:
                self.leader = node_id
            self._on_event(node_id, event)

    def kill(self, node_id: int) -> float:
        """Kill it; returns the time at which it was certainly dead, by the monotonic clock that all processes share."""
        process = self._processes.pop(node_id)
        process.kill()
        process.wait()
        return time.monotonic()

    def kill_leader(self) -> tuple[int, float]:
        """Kill the leader and wait for the next one; returns the killed one and its time of death."""
        self.wait_for(lambda: self.leader is not None, "a leader")
        victim, self.leader = self.leader, None
        assert victim is not None
        at = self.kill(victim)
        self.wait_for(lambda: self.leader is not None, "another leader")
        return victim, at

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Fail with what the processes said when it does not come to be."""

        def described() -> str:
            return "\n".join([what, *(file.read_text()[-2000:] for file in self._folder.glob("*.err"))])

        wait_until(condition, described, bound_s=BOUND_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in list(self._processes):
            self.kill(node_id)
        for reader in self._readers:
            reader.join()
