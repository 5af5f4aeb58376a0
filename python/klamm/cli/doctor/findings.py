"""From facts to findings: what is wrong or about to go wrong, in plain words, and what to do."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Severity(enum.Enum):
    """How bad it is."""

    ERROR = "error"
    """The quorum has no leader because of it, or a node cannot take part."""
    WARNING = "warning"
    """It works, and will not in some case that is not rare."""


class Finding(NamedTuple):
    """One thing that is wrong."""

    name: str
    """What kind, for machines: `unreachable-voter`."""
    severity: Severity
    text: str
    advice: str


def error(name: str, text: str, advice: str) -> Finding:
    """What keeps the quorum, or a node of it, from working."""
    return Finding(name, Severity.ERROR, text, advice)


def warning(name: str, text: str, advice: str) -> Finding:
    """What is about to go wrong."""
    return Finding(name, Severity.WARNING, text, advice)
