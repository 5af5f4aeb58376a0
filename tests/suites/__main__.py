"""`python -m tests.suites FOLDER [NAME...] [--brokers N | --apache-kafka]`: the clients' own suites against klamm.

The results are compared with Apache Kafka's. With several brokers, topics have three replicas and a min ISR of 2. With
--apache-kafka the suites run against Apache Kafka 4.3.1 instead, on the same machine.

FOLDER holds the runners: `NAME.sh HOST:PORT [VARIANT]` prints `FAIL test ...` for every failing test and last `NAME: P
passed, F failed, S skipped`; lines `# BROKER: key=value` in it are settings that the node is started with. A suite is
asked for as NAME or NAME:VARIANT, e.g. `librdkafka:share`. Each gets a fresh node, or fresh nodes. What may fail, and
why, is in exceptions.toml; the exit code is 0 when nothing else does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop import apache_kafka
from tests.suites import exceptions
from tests.suites.exceptions import APACHE_KAFKA, Outcome
from tests.support.broker_processes import BrokerProcess, created
from tests.support.node_process import METADATA, NodeProcess
from tests.support.ports import free_port
from tests.support.waiting import wait_until

SUITE_SECONDS_MAX: Final = 3600
START_S: Final = 60.0
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
REPLICATED: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""Topics that a runner creates with a number of replicas have as many: librdkafka's takes it from RF."""

LEFT_OUT: Final = {
    "kafka_python": {"num.partitions": "4"},
    "librdkafka": {
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.share.min.record.lock.duration.ms": "1000",
    },
}
"""Settings that a runner does not have. kafka-python's own brokers have topics of four partitions, which a test of
transactions needs; Apache Kafka 4.3.1 too rejects a heartbeat interval of 500 ms and, in 0173, a lock of 3 s, which are
below its own minimums.
"""

KAFKAS_OWN: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
"""Apache Kafka's settings for the tests of ACLs."""

PATIENCE: Final = {"LIMIT": "600", "TOTAL": "1800"}
"""Seconds for one number of librdkafka, and for all: with the runner's own limits, Apache Kafka does not finish 0113
either, and 0174 takes five minutes.
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """A runner and its settings."""

    script: Path
    variant: str
    """Empty for the runner's default."""
    settings: dict[str, str]

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.script.stem}:{self.variant}" if self.variant else self.script.stem

    def command(self, address: str) -> list[str]:
        """The command that runs it against a node."""
        return ["bash", str(self.script), address, *([self.variant] if self.variant else [])]


def suites(folder: Path, names: list[str]) -> list[Suite]:
    """The runners with those names, or all of them."""
    found = []
    for name in names or sorted(APACHE_KAFKA):
        stem, _, variant = name.partition(":")
        script = folder / f"{stem}.sh"
        if script.exists() or names:
            found.append(Suite(script, variant, settings(script.read_text()) | LEFT_OUT.get(stem, {})))
    return found


def settings(script: str) -> dict[str, str]:
    """The `# BROKER: key=value` lines."""
    return dict(re.findall(r"^# BROKER: ([^=\s]+)=(.*)$", script, re.MULTILINE))


@contextlib.contextmanager
def serving_kafka(suite: Suite, folder: Path) -> Iterator[str]:
    """The address of a new node of Apache Kafka 4.3.1."""
    with apache_kafka.running(folder / suite.name, CLUSTER_ID, KAFKAS_OWN | suite.settings) as node:
        yield node.bootstrap


@contextlib.contextmanager
def serving(suite: Suite, folder: Path, brokers: int) -> Iterator[str]:
    """The address of a new node, or of one of several. The suites compare it with the advertised one."""
    if brokers == 1:
        port = free_port()
        own = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with NodeProcess(folder / suite.name, port=port, overrides=own | suite.settings) as node:
            yield node.bootstrap
        return
    with contextlib.ExitStack() as stack:
        nodes = [BrokerProcess(files) for files in created(folder / suite.name, brokers, REPLICATED | suite.settings)]
        for node in nodes:
            node.advertise("127.0.0.1", node.port)
            node.launch()
            stack.callback(node.kill)
        wait_until(lambda: all(node.answers(METADATA) for node in nodes), bound_s=START_S)
        yield nodes[0].bootstrap


def run(suite: Suite, address: str, brokers: int) -> list[str]:
    """Run a suite and copy its output; returns the lines."""
    lines: list[str] = []
    replicas = {"RF": REPLICATED["default.replication.factor"]} if brokers > 1 else {}
    environment = replicas | (PATIENCE if suite.script.stem == "librdkafka" else {}) | os.environ
    # The suites have packages that may have the same names as ours.
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        suite.command(address), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=environment
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
    """Run the suites; returns 1 when one gives no verdict, or when a test fails without being excused."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--brokers", type=int, default=1)
    target.add_argument("--apache-kafka", action="store_true")
    asked = parser.parse_args(arguments)
    excused = {} if asked.apache_kafka else exceptions.load(exceptions.FILE.read_text(), asked.brokers)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="klamm-suites-") as folder:
        for suite in suites(asked.folder, asked.names):
            place = Path(folder)
            nodes = serving_kafka(suite, place) if asked.apache_kafka else serving(suite, place, asked.brokers)
            with nodes as address:
                began = time.monotonic()
                lines = run(suite, address, asked.brokers)
                print(f"{suite.name}: {time.monotonic() - began:.0f} s", flush=True)
            is_whole = not suite.variant and not os.environ.get("ONLY")
            own = exceptions.of_suite(excused, suite.name)
            outcomes.append(exceptions.judge(suite.name, lines, own, is_whole=is_whole))
    report(outcomes)
    return 0 if outcomes and all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
