"""The examples of klamm.raft, run as their documentation describes."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "raft"
BOUND_S = 60


def environment() -> dict[str, str]:
    """The program imports the same klamm as this test, in any working directory."""
    import klamm

    return os.environ | {"PYTHONPATH": str(Path(klamm.__file__).parents[1])}


def run(folder: Path, *args: str) -> str:
    command = [sys.executable, str(EXAMPLES / args[0]), *args[1:]]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout


@contextlib.contextmanager
def three(folder: Path, name: str) -> Iterator[list[subprocess.Popen[str]]]:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), str(node_id), *addresses],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for node_id in (1, 2, 3)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def say(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_the_counter_continues_after_a_restart(tmp_path: Path) -> None:
    assert [run(tmp_path, "counter.py") for _ in range(3)] == ["1\n", "2\n", "3\n"]


def test_the_store_survives_a_killed_process(tmp_path: Path) -> None:
    with three(tmp_path, "kv.py") as processes:
        assert say(processes[0], "colour=green") == "ok"
        assert [say(process, "colour") for process in processes] == ["green"] * 3
        processes.pop(0).kill()
        assert say(processes[0], "colour=blue") == "ok"
        assert say(processes[1], "colour") == "blue"


@pytest.mark.slow  # a session has to expire
def test_the_lock_goes_to_another_when_its_holder_dies(tmp_path: Path) -> None:
    with three(tmp_path, "lock.py") as processes, selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(process.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
        holders = []
        for _ in range(2):
            [(key, _), *_] = selector.select(BOUND_S)
            node_id, token = key.data.stdout.readline().split(" works with token ")
            holders.append((int(node_id), int(token)))
            selector.unregister(key.fileobj)
            key.data.kill()
    (first, low), (second, high) = holders
    assert first != second
    assert low < high
