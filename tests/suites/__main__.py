"""`python -m tests.suites FOLDER [NAME...]`: the clients' own suites against klamm, beside what Apache Kafka passes.

FOLDER holds the runners: `NAME.sh HOST:PORT` prints `FAIL test ...` for every failing test and last `NAME: P passed,
F failed, S skipped`; lines `# BROKER: key=value` in it are settings that the node is started with. Each suite gets a
fresh node. What may fail, and why, is in exceptions.toml; the exit code is 0 when nothing else does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.suites import exceptions
from tests.suites.exceptions import APACHE_KAFKA, Excused, Outcome
from tests.support.node_process import NodeProcess
from tests.support.ports import free_port

SUITE_SECONDS_MAX: Final = 3600

LEFT_OUT: Final = {"librdkafka": {"group.consumer.min.heartbeat.interval.ms": "500"}}
"""What a runner does not say: Apache Kafka 4.3.1 too refuses a heartbeat interval of 500 ms below its own minimum."""

PATIENCE: Final = {"LIMIT": "200", "TOTAL": "1800"}
"""Seconds for a number of librdkafka, and for all: with the runner's own, Apache Kafka too leaves 0113 undone."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One runner and the settings it wants."""

    script: Path
    settings: dict[str, str]

    @property
    def name(self) -> str:
        """As its last line begins."""
        return self.script.stem


def suites(folder: Path, names: list[str]) -> list[Suite]:
    """The runners of those names, or all that are known."""
    wanted = names or sorted(APACHE_KAFKA)
    scripts = [folder / f"{name}.sh" for name in wanted]
    found = [script for script in scripts if script.exists() or names]
    return [Suite(script, settings(script.read_text()) | LEFT_OUT.get(script.stem, {})) for script in found]


def settings(script: str) -> dict[str, str]:
    """The `# BROKER: key=value` lines."""
    return dict(re.findall(r"^# BROKER: ([^=\s]+)=(.*)$", script, re.MULTILINE))


def run(suite: Suite, folder: Path) -> list[str]:
    """The lines of a suite's run against a fresh node; everything it prints goes through."""
    lines: list[str] = []
    port = free_port()
    # The suites know their broker by this address, and compare it with what they are told.
    own = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with NodeProcess(folder / suite.name, port=port, overrides=own | suite.settings) as node:
        command = ["bash", str(suite.script), node.bootstrap]
        environment = (PATIENCE if suite.name == "librdkafka" else {}) | os.environ
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=environment
        ) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines += [line.strip()] if line.strip() else []
            process.wait(SUITE_SECONDS_MAX)
    return lines


def report(outcomes: list[Outcome]) -> None:
    """Every exception with its reason, then a line for each suite."""
    for outcome in outcomes:
        for test, reason in outcome.excused.items():
            print(f"exception: {outcome.suite} {test}: {reason}")
    for outcome in outcomes:
        for test in outcome.unexpected_passes:
            print(f"PASSES, but is listed as an exception: {outcome.suite} {test}: take it off {exceptions.FILE.name}")
    print()
    for outcome in outcomes:
        print(outcome)
    passed = sum(outcome.passed or 0 for outcome in outcomes)
    kafka = sum(APACHE_KAFKA.get(outcome.suite, 0) for outcome in outcomes)
    excused = sum(len(outcome.excused) for outcome in outcomes)
    failed = sum(len(outcome.failed) for outcome in outcomes)
    print(f"all: {passed} passed, Apache Kafka 4.3.1 passes {kafka}; {excused} exceptions, {failed} other failures")


def main(arguments: list[str]) -> int:
    """Run the suites; 1 when one gave no verdict, or when a test fails that is not excused."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    excused = exceptions.load(exceptions.FILE.read_text())
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="klamm-suites-") as folder:
        for suite in suites(Path(arguments[0]), arguments[1:]):
            lines = run(suite, Path(folder))
            outcomes.append(exceptions.judge(suite.name, lines, excused.get(suite.name, Excused())))
    report(outcomes)
    return 0 if outcomes and all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
