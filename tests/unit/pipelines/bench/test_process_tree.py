from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klamm.pipelines.bench.process_tree import Watch, peak_rss, processes, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for line in sys.stdin:
    child.stdin.write(line)
    child.stdin.flush()
    print(child.stdout.readline(), end="", flush=True)
child.stdin.close()
child.wait()
"""
CHILD = """
import sys, time
for line in sys.stdin:
    held = b"x" * int(line)
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    del held
    print("done", flush=True)
"""


def test_a_watch_measures_the_cpu_of_all_descendants() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("1\n")
        process.stdin.flush()
        process.stdout.readline()
        assert [one.pid for one in tree(process.pid) if one.parent == process.pid]
        with Watch(process.pid) as watch:
            process.stdin.write(f"{64 << 20}\n")
            process.stdin.flush()
            process.stdout.readline()
        process.stdin.close()
    assert watch.used.cpu >= 0.1
    assert watch.used.jvm_rss == 0, "there is no java"
    assert watch.used.worker_rss == 0, "a worker is what a java starts"


def test_this_process_is_in_the_table_with_its_peak_memory() -> None:
    mine = processes()[os.getpid()]
    assert mine.parent == os.getppid()
    assert mine.cpu > 0
    assert peak_rss(os.getpid()) > 1 << 20


def test_an_ended_process_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert peak_rss(process.pid) == 0
    assert tree(process.pid) == []
