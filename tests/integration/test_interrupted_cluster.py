"""Ctrl-C while a `Cluster` opens, serves or closes, at any moment: it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTS = """
import asyncio, gc, os, signal, sys, threading, time, klamm

kind, count, controllers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None
arguments = {"controllers": controllers} if controllers else {}
is_armed = False
is_inside = kind == "sync"
hits = 0

def interrupt(*_):
    if is_armed and is_inside:
        signal.raise_signal(signal.SIGINT)

def live():
    with klamm.Cluster(**arguments) as cluster:
        cluster.topics()

async def live_async():
    async with klamm.Cluster(**arguments) as cluster:
        cluster.topics()

def run_async():
    global is_inside
    runner = asyncio.Runner()
    runner.get_loop()  # CPython leaves descriptors when its own set-up of a loop is interrupted
    try:
        is_inside = True
        runner.run(live_async())
    except asyncio.CancelledError:  # CPython forgets an interrupt between its handler's set-up and its run
        raise KeyboardInterrupt from None
    finally:
        is_inside = False
        runner.close()

run = live if kind == "sync" else run_async

def found():
    gc.collect()
    native = len(os.listdir("/proc/self/task"))
    descriptors = len(os.listdir("/proc/self/fd"))
    return {"descriptors": descriptors, "threads": threading.active_count(), "native threads": native}

def settles(expected):
    end = time.monotonic() + 60
    while (now := found()) != expected and time.monotonic() < end:
        time.sleep(0.02)
    return now

signal.signal(signal.SIGALRM, interrupt)
run()
before = found()
life_s = 0.05
for number in range(20 * count):
    began = time.monotonic()
    try:
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, max(1e-5, life_s * (number % 97) / 97), BURST)
            run()
        finally:
            is_armed = False
    except KeyboardInterrupt:
        is_armed = False
        hits += 1
    else:
        life_s = time.monotonic() - began
    signal.setitimer(signal.ITIMER_REAL, 0)
    if hits == count:
        break
after = settles(before)
print(hits, before == after or (before, after))
"""


@pytest.mark.parametrize(
    ("kind", "count", "controllers", "burst_s"),
    [("sync", 120, 0, 0), ("async", 60, 0, 0), ("sync", 40, 3, 0), ("async", 20, 3, 0), ("sync", 40, 0, 0.002)],
)
def test_an_interrupted_cluster_leaves_nothing_behind(
    tmp_path: Path, kind: str, count: int, controllers: int, burst_s: float
) -> None:
    """`burst_s`: the interval between repeated interrupts."""
    code = INTERRUPTS.replace("BURST", str(burst_s))
    done = subprocess.run(
        [sys.executable, "-c", code, kind, str(count), str(controllers)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.stdout, done.returncode) == (f"{count} True\n", 0), done.stderr
    assert list(tmp_path.iterdir()) == []


FORGOTTEN = """
import gc, os, threading, time, klamm

def found():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()

klamm.Cluster().close()
before = found()
klamm.Cluster().create_topic("t")
end = time.monotonic() + 60
while found() != before and time.monotonic() < end:
    time.sleep(0.02)
print(found() == before)
"""


def test_an_unreferenced_cluster_closes_itself(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", FORGOTTEN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
    assert list(tmp_path.iterdir()) == []
