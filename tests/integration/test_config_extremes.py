"""Every numeric key at 0, -1 and its limits: rejected with a message, or the node starts and serves."""

from __future__ import annotations

import json
import math
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Self

import pytest

from klamm._engine.config import ConfigError, ConfigKey, config_keys, parse_config

ENDS: dict[str, tuple[float, float]] = {
    "INT": (-(2**31), 2**31 - 1),
    "SHORT": (-(2**15), 2**15 - 1),
    "LONG": (-(2**63), 2**63 - 1),
    "DOUBLE": (-1.7976931348623157e308, 1.7976931348623157e308),
}
CHUNKS = 8
TIMEOUT_S = 90
NO_SERVICE = {
    ("message.max.bytes", "0"): "MSG_SIZE_TOO_LARGE",
    ("log.message.timestamp.after.max.ms", "0"): "INVALID_TIMESTAMP",
    ("log.message.timestamp.before.max.ms", "0"): "INVALID_TIMESTAMP",
}
"""The error of a produce to a node with that value, as with Apache Kafka."""


def numbers(key: ConfigKey) -> list[str]:
    """The values to try, as text."""
    least, most = ENDS[key.type]
    found = {0, -1, least, most}
    bounds = re.match(r"\[([^,]+),\.\.\.(?:,([^\]]+))?\]", key.allowed)
    if bounds:
        found |= {float(bound) if key.type == "DOUBLE" else int(float(bound)) for bound in bounds.groups() if bound}
    return [repr(value) for value in sorted(found) if math.isfinite(value)]


def cases() -> Iterator[dict[str, str]]:
    """One configuration per value of a key that klamm honours; the other keys have no effect, and are combined."""
    others: dict[str, dict[str, str]] = {}
    for key in config_keys("node"):
        if key.type not in ENDS or key.is_dynamic_only:
            continue
        for value in numbers(key):
            if key.is_honoured:
                yield {key.name: value}
            elif is_allowed(key.name, value):
                others.setdefault(value, {})[key.name] = value
    yield from others.values()


def is_allowed(name: str, value: str) -> bool:
    try:
        parse_config("node", name, value)
    except ConfigError:
        return False
    return True


def outcomes(tried: list[dict[str, str]]) -> Iterator[tuple[dict[str, str], str]]:
    """The outcome of each. A value that ends or blocks its process is reported; the rest use a new process."""
    left = list(tried)
    while left:
        with Trial(left) as trial:
            while left and (outcome := trial.next()) is not None:
                yield left.pop(0), outcome
            if left:
                yield left.pop(0), trial.end


class Trial:
    """A process that tries one configuration after the other."""

    def __init__(self, tried: list[dict[str, str]]) -> None:
        program = [sys.executable, "-m", "tests.support.config_extremes", json.dumps(tried)]
        self._process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.end = ""
        """How the process ended, after the last outcome."""

    def next(self) -> str | None:
        """The next outcome; None after the last one."""
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], TIMEOUT_S)[0]:
            self.end = f"failed: nothing came of it in {TIMEOUT_S} s"
            return None
        line = output.readline()
        if not line:
            said = b"" if self._process.stderr is None else self._process.stderr.read()
            self.end = f"failed: the process ended with {self._process.wait()}: {said.decode()[-500:]}"
            return None
        outcome: str = json.loads(line)
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def complaint(config: dict[str, str], outcome: str) -> str | None:
    """What is wrong with that outcome; None if it is fine."""
    [(name, value), *rest] = config.items()
    if outcome == "served":
        return None
    if (name, value) in NO_SERVICE and NO_SERVICE[name, value] in outcome:
        return None
    if outcome.startswith("refused: ") and name in outcome and (value in outcome or rest):
        return None
    return f"{config}: {outcome}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_number_is_rejected_with_a_message_or_the_node_serves(chunk: int) -> None:
    tried = list(cases())[chunk::CHUNKS]
    complaints = [complaint(*outcome) for outcome in outcomes(tried)]
    assert [text for text in complaints if text is not None] == []
