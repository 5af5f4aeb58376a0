"""Tests that may fail: exceptions.toml, by suite and by the test's name in the runner's FAIL line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("exceptions.toml")

APACHE_KAFKA: Final[Mapping[str, int]] = {
    "confluent_kafka_python": 22,
    "java_tools": 82,
    "kafka_python": 54,
    "kcat": 22,
    "librdkafka": 90,
}
"""What Apache Kafka 4.3.1 passes with a new node per suite, including transactions, ACLs, share groups and quotas."""

_VERDICT: Final = re.compile(r"(\w+): (\d+) passed, (\d+) failed, (\d+) skipped")


@dataclass(frozen=True, slots=True)
class Excused:
    """The exceptions of one suite, with a reason for each test."""

    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """APIs that a test needs and klamm lacks, as `Name (key)`."""
    vacuous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same for tests that pass anyway, because their runner mistakes a rejection for the expected outcome."""
    fails_on_kafka: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail against Apache Kafka 4.3.1 too, always or sometimes, and how."""
    of_one_broker: Mapping[str, str] = field(default_factory=dict)
    """Tests that assume one broker, and what they assume; empty when there is one."""

    def reason(self, test: str) -> str | None:
        """Why the test may fail; None when it may not."""
        apis = self.needs.get(test) or self.vacuous.get(test)
        if apis:
            return "needs " + ", ".join(apis)
        if test in self.of_one_broker:
            return f"with one broker only: {self.of_one_broker[test]}"
        return f"on Apache Kafka too: {self.fails_on_kafka[test]}" if test in self.fails_on_kafka else None


def of_suite(excused: Mapping[str, Excused], suite: str) -> Excused:
    """The exceptions of a suite; those of a variant, such as `librdkafka:consumer`, are added to the suite's own."""
    own, variant = (excused.get(name, Excused()) for name in (suite.partition(":")[0], suite))
    return Excused(**{each.name: {**getattr(own, each.name), **getattr(variant, each.name)} for each in fields(own)})


def load(text: str, brokers: int = 1) -> dict[str, Excused]:
    """The exceptions by suite, or by suite and variant."""

    def excused(tables: Mapping[str, Mapping[str, Any]]) -> Excused:
        of_one_broker = tables.get("of_one_broker", {}) if brokers > 1 else {}
        return Excused(
            _apis(tables, "needs"), _apis(tables, "vacuous"), tables.get("fails_on_kafka", {}), of_one_broker
        )

    return {suite: excused(tables) for suite, tables in tomllib.loads(text).items()}


def _apis(tables: Mapping[str, Mapping[str, list[str]]], name: str) -> dict[str, tuple[str, ...]]:
    return {test: tuple(apis) for test, apis in tables.get(name, {}).items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a suite."""

    suite: str
    passed: int | None
    """Without tests that prove nothing. None: the run ended without a verdict."""
    excused: Mapping[str, str]
    """Tests that failed, or passed without proving anything, with their reasons."""
    failed: tuple[str, ...]
    """Failed tests without a reason."""
    unexpected_passes: tuple[str, ...]
    """Tests of a missing API that did not fail: the list is out of date, or the test proves nothing."""

    @property
    def is_clean(self) -> bool:
        """Whether the suite finished, and only excused tests failed."""
        return self.passed is not None and not self.failed

    def __str__(self) -> str:
        if self.passed is None:
            return f"{self.suite}: no verdict"
        passes = APACHE_KAFKA.get(self.suite, "?")
        unlisted = f"; {len(self.failed)} FAILED: {' '.join(self.failed)}" if self.failed else ""
        text = f"{self.suite}: {self.passed} passed, Apache Kafka passes {passes}"
        return f"{text}; {len(self.excused)} exceptions{', each listed' if self.excused else ''}{unlisted}"


def judge(suite: str, lines: list[str], excused: Excused, *, is_whole: bool = True) -> Outcome:
    """Compare the output of a runner, `FAIL name ...` and a final verdict, with the list.

    Only a run of the whole suite shows that a listed test passes.
    """
    failing = [line.split()[1] for line in lines if line.startswith("FAIL ")]
    verdict = _VERDICT.match(lines[-1]) if lines else None
    if verdict is None or verdict[1] != suite.partition(":")[0]:
        return Outcome(suite, None, {}, tuple(failing), ())
    failed = tuple(test for test in failing if excused.reason(test) is None)
    if int(verdict[3]) != len(failing):
        failed += (f"({verdict[3]} failed, but {len(failing)} FAIL lines)",)
    proves_nothing = [test for test in excused.vacuous if is_whole and test not in failing]
    reasons = {test: reason for test in [*failing, *proves_nothing] if (reason := excused.reason(test)) is not None}
    unexpected = tuple(sorted(excused.needs.keys() - set(failing))) if is_whole else ()
    return Outcome(suite, int(verdict[2]) - len(proves_nothing), reasons, failed, unexpected)
