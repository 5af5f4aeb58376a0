"""Faults that Apache Kafka had are rules in `traps`, and `cases` has those in which it and klamm answer alike.

Each names tests or scenarios, which must exist.
"""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
RULE = re.compile(r"(KAFKA-\d+(, KAFKA-\d+)*|PR-\d+|Kafka 4\.3|\d+)[: ]")
LISTS = sorted(path for folder in ("traps", "cases") for path in (FOLDER / folder).glob("*.txt"))


@cache
def text_of(path):
    return (ROOT / path).read_text() if (ROOT / path).is_file() else None


def is_there(shown_by):
    path, _, test = shown_by.partition("::")
    if not test:
        return (FOLDER / "replication" / f"{path}.txt").is_file()
    text = text_of(path)
    return text is not None and re.search(rf"\b(def|fn) {re.escape(test)}\(", text) is not None


def rules_of(path):
    """Each rule with the names of its tests and scenarios."""
    found = []
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        elif line and not line.startswith("#"):
            found.append((line, []))
    return found


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_rule_is_shown(path):
    for rule, shown_by in rules_of(path):
        assert RULE.match(rule), f"{path.name}: {rule}"
        assert shown_by, f"{path.name}: nothing shows {rule}"
        for name in shown_by:
            assert is_there(name), f"{path.name}: there is no {name}, which is to show {rule}"
