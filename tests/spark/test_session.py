"""A pipeline's own session stops cleanly after Ctrl-C, and when its JVM is stopped with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import klamm

WAITING = """
import signal

from klamm.pipelines.session import session

signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    with session("waiting", master="local[1]", quiet=True) as spark:
        print("ready", flush=True)
        spark.sparkContext._jvm.java.lang.Thread.sleep(600_000)
except KeyboardInterrupt:
    print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_no_traceback(java: None, number: signal.Signals) -> None:
    paths = [str(Path(klamm.__path__[0]).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, number)
        printed, complained = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (printed, complained, process.returncode) == ("ended\n", "", 0)
