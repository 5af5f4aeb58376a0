"""State batches of share groups are merged exactly as by Apache Kafka 4.3.1."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from klamm.coordinator.share.batches import combine
from klamm.protocol.messages.share_state import NO_START_OFFSET, StateBatch
from tests.interop import apache_kafka
from tests.support.foreign import require

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(__file__).with_name("Batches.java")
CASES = 20_000


def some_batches(rng: random.Random) -> list[StateBatch]:
    """Up to 6 batches over few offsets, so that many overlap or are adjacent."""
    found = []
    for _ in range(rng.randrange(7)):
        first = rng.randrange(25)
        found.append(StateBatch(first, first + rng.randrange(9), rng.choice((0, 2, 4)), rng.randrange(1, 4)))
    return found


def text(batches: Sequence[StateBatch]) -> str:
    return " ".join(",".join(map(str, one)) for one in batches)


def test_random_batches_merge_alike() -> None:
    require("java", "mvn")
    rng = random.Random(932)
    cases = [
        (rng.choice((NO_START_OFFSET, rng.randrange(30))), some_batches(rng), some_batches(rng)) for _ in range(CASES)
    ]
    lines = "".join(f"{start};{text(so_far)};{text(added)}\n" for start, so_far, added in cases)
    done = subprocess.run(
        apache_kafka.java(str(PROGRAM)), input=lines, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    merged = done.stdout.splitlines()
    assert len(merged) == CASES
    for (start, so_far, added), expected in zip(cases, merged, strict=True):
        assert text(combine(so_far, added, start)) == expected, f"{start}: {so_far} and {added}"
