"""`python -m tests.suites FOLDER [NAME...]`: the clients' own suites against klamm, beside what Apache Kafka scores.

FOLDER holds the runners: `NAME.sh HOST:PORT` prints a line for every failing test and last `NAME: P passed, F failed,
S skipped`; lines `# BROKER: key=value` in it are settings that the node is started with. Each suite gets a fresh node.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.node_process import NodeProcess, free_port

APACHE_KAFKA: Final = {
    "librdkafka": "90 passed of 93 numbers, 0113 not completed",
    "kafka_python": "54 passed, 0 failed, 10 skipped",
    "confluent_kafka_python": "22 passed, 0 failed, 1 skipped",
    "kcat": "22 passed, 0 failed",
    "java_tools": "82 passed, 0 failed",
}
"""What Apache Kafka 4.3.1 scores, one fresh node each; transactions, ACLs, share groups and quotas are among it."""

SUITE_SECONDS_MAX: Final = 3600


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
    return [Suite(script, settings(script.read_text())) for script in scripts if script.exists() or names]


def settings(script: str) -> dict[str, str]:
    """The `# BROKER: key=value` lines."""
    return dict(re.findall(r"^# BROKER: ([^=\s]+)=(.*)$", script, re.MULTILINE))


def run(suite: Suite, folder: Path) -> str:
    """The last line of a suite's run against a fresh node; everything it prints goes through."""
    last = f"{suite.name}: no result"
    port = free_port()
    # The suites know their broker by this address, and compare it with what they are told.
    own = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with NodeProcess(folder / suite.name, port=port, overrides=own | suite.settings) as node:
        command = ["bash", str(suite.script), node.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                last = line.strip() or last
            process.wait(SUITE_SECONDS_MAX)
    return last


def main(arguments: list[str]) -> int:
    """Run the suites; 1 when one gave no result or has failures."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    found = suites(Path(arguments[0]), arguments[1:])
    with tempfile.TemporaryDirectory(prefix="klamm-suites-") as folder:
        results = {suite.name: run(suite, Path(folder)) for suite in found}
    print("\nsuite: klamm | Apache Kafka 4.3.1")
    for name, result in results.items():
        print(f"{result} | {APACHE_KAFKA.get(name, '?')}")
    clean = re.compile(r": \d+ passed, 0 failed")
    return 0 if results and all(clean.search(result) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
