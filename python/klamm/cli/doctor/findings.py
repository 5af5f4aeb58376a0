"""A finding: what is wrong or likely to fail, in plain words, and what to do."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Severity(enum.Enum):
    """How severe a finding is."""

    ERROR = "error"
    """The quorum has no leader because of it, or a node cannot take part."""
    WARNING = "warning"
    """The quorum works, but will fail in a case that is not rare."""


class Finding(NamedTuple):
    """One problem."""

    name: str
    """The kind of problem for programs, such as `unreachable-voter`."""
    severity: Severity
    text: str
    advice: str


def error(name: str, text: str, advice: str) -> Finding:
    """A problem that prevents the quorum or a node from working."""
    return Finding(name, Severity.ERROR, text, advice)


def warning(name: str, text: str, advice: str) -> Finding:
    """A problem that is likely to cause a failure."""
    return Finding(name, Severity.WARNING, text, advice)
