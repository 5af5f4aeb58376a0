"""A task's worker holds a batch and a response, however large its partition is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

import klamm
from klamm.client import KafkaClient
from tests.spark.conftest import REPOSITORY

MIB = 1 << 20
BOUND = 64 * MIB
"""A batch and a broker's response, at most 8 MiB each and twice for a moment, and some slack."""


def fill(bootstrap: str, topic: str, size: int, record_bytes: int) -> int:
    """Produce records of `record_bytes`, `size` bytes in total; returns their number."""
    count = size // record_bytes
    at_once = max(1, MIB // record_bytes)
    values = pa.array([b"v" * record_bytes] * at_once, pa.binary())
    with KafkaClient(bootstrap, {"max.request.size": str(4 * MIB)}) as client:
        for at in range(0, count, at_once):
            client.produce(topic, 0, None, values.slice(0, min(at_once, count - at)))
        client.flush()
    return count


def read(bootstrap: str, topic: str, count: int) -> dict[str, int]:
    paths = [os.path.dirname(klamm.__path__[0]), str(REPOSITORY)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.reading_child", bootstrap, topic, str(count)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    assert found["rows"] == count
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize(
    ("record_bytes", "small", "large"), [(100, 10 * MIB, 120 * MIB), (MIB - 1000, 10 * MIB, 160 * MIB)]
)
def test_memory_does_not_grow_with_the_partition(
    bootstrap: str, topic: Callable[..., str], record_bytes: int, small: int, large: int
) -> None:
    more = {}
    for size in (small, large):
        name = topic()
        more[size] = read(bootstrap, name, fill(bootstrap, name, size, record_bytes))["more"]
    assert more[large] < BOUND, more
    assert more[large] < more[small] + large // 4, more
