"""The judge of client suites: a test may fail only if it is listed, with the missing API that it needs."""

from __future__ import annotations

import re

import pytest

from klamm.protocol.apis import APIS
from tests.suites import exceptions
from tests.suites.exceptions import APACHE_KAFKA, Excused, judge

EXCUSED = Excused({"acls": ("DescribeAcls (29)",)}, {"quotas": ("AlterClientQuotas (49)",)}, {"0113": "times out"})


def test_every_exception_needs_an_api_that_is_absent() -> None:
    served = {key for key, api in APIS.items() if {api.on_broker, api.on_controller} & {"engine", "python"}}
    for suite, excused in exceptions.load(exceptions.FILE.read_text()).items():
        assert suite.partition(":")[0] in APACHE_KAFKA
        for test, apis in {**excused.needs, **excused.vacuous}.items():
            assert apis, f"{suite} {test}: name the API that it needs"
            keys = [re.fullmatch(r"[A-Z][A-Za-z]+ \((\d+)\)", api) for api in apis]
            assert all(keys), f"{suite} {test}: {apis} are not all `Name (key)`"
            there = [key[0] for key in keys if key is not None and int(key[1]) in served]
            assert not there, f"{suite} {test}: {there} is served, take the test off {exceptions.FILE.name}"


@pytest.mark.parametrize(
    ("lines", "clean", "text"),
    [
        (["kcat: 22 passed, 0 failed, 0 skipped"], True, "kcat: 22 passed, Apache Kafka passes 22; 0 exceptions"),
        (["FAIL keys (wanted 1)", "kcat: 21 passed, 1 failed, 0 skipped"], False, "1 FAILED: keys"),
        (["FAIL keys (wanted 1)", "kcat: 21 passed, 2 failed, 0 skipped"], False, "(2 failed, but 1 FAIL lines)"),
        (["FLAKY 0113 (first run: exit 1)", "kcat: 1 passed, 0 failed, 2 skipped"], True, "kcat: 1 passed"),
        (["kcat: no kcat"], False, "kcat: no verdict"),
        (["librdkafka: 22 passed, 0 failed, 0 skipped"], False, "kcat: no verdict"),
        ([], False, "kcat: no verdict"),
    ],
)
def test_a_suite_is_clean_only_with_a_verdict_and_without_failures(lines: list[str], clean: bool, text: str) -> None:
    outcome = judge("kcat", lines, Excused())
    assert outcome.is_clean is clean
    assert text in str(outcome)


def test_a_listed_failure_is_excused_with_its_reason() -> None:
    lines = ["FAIL acls (refused)", "FAIL quotas", "FAIL 0113 (time-out )", "kcat: 9 passed, 3 failed, 0 skipped"]
    outcome = judge("kcat", lines, EXCUSED)
    assert outcome.is_clean
    assert outcome.passed == 9
    assert outcome.excused == {
        "acls": "needs DescribeAcls (29)",
        "quotas": "needs AlterClientQuotas (49)",
        "0113": "on Apache Kafka too: times out",
    }


def test_a_vacuous_pass_is_not_counted() -> None:
    outcome = judge("kcat", ["kcat: 9 passed, 0 failed, 0 skipped"], Excused(vacuous=EXCUSED.vacuous))
    assert (outcome.passed, outcome.excused) == (8, {"quotas": "needs AlterClientQuotas (49)"})


def test_a_listed_test_that_passes_is_reported() -> None:
    outcome = judge("kcat", ["kcat: 9 passed, 0 failed, 0 skipped"], EXCUSED)
    assert outcome.unexpected_passes == ("acls",), "a flaky one may pass"


def test_a_part_of_a_suite_shows_nothing_of_the_tests_that_it_leaves_out() -> None:
    outcome = judge("kcat", ["kcat: 2 passed, 0 failed, 0 skipped"], EXCUSED, is_whole=False)
    assert (outcome.passed, outcome.unexpected_passes, outcome.excused) == (2, (), {})


def test_a_variant_has_exceptions_beside_those_of_its_suite() -> None:
    text = '[kcat.fails_on_kafka]\na = "always"\n["kcat:new".fails_on_kafka]\nb = "now and then"'
    excused = exceptions.load(text)
    assert exceptions.of_suite(excused, "kcat").reason("b") is None
    assert exceptions.of_suite(excused, "kcat:new").reason("a") == "on Apache Kafka too: always"
    assert exceptions.of_suite(excused, "kcat:new").reason("b") == "on Apache Kafka too: now and then"
    assert exceptions.of_suite(excused, "kcat:old").reason("a") == "on Apache Kafka too: always"


def test_an_assumption_of_one_broker_is_excused_with_several_only() -> None:
    text = '[kcat.of_one_broker]\nleader = "node 1 leads"'
    lines = ["FAIL leader", "kcat: 9 passed, 1 failed, 0 skipped"]
    assert not judge("kcat", lines, exceptions.load(text)["kcat"]).is_clean
    outcome = judge("kcat", lines, exceptions.load(text, 3)["kcat"])
    assert outcome.excused == {"leader": "with one broker only: node 1 leads"}
