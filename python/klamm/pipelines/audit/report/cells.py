"""Values as table cells."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Final

from klamm.pipelines.audit.durations import duration

NOTHING: Final = "–"
_ABSENT: Final = {
    "to_time": "still so",
    "to_offset": "still so",
    "ended": "still so",
    "from_leader": "none",
    "to_leader": "none",
    "before": "not set",
    "after": "not set",
    "recovered_time": "not recovered",
    "leader_before": "not known",
    "broker": "none",
    "epochs_between": "not known",
    "length_ms": "not known",
    "topic": "name not known",
}
"""The meaning of a missing value."""
_LONG: Final = frozenset({"topic", "resource_name", "name", "before", "after", "cause"})
"""Columns whose texts may be of any length."""


def is_of_numbers(values: Iterable[Any]) -> bool:
    """Whether a column has numbers, and else nothing."""
    return any(isinstance(value, int) and not isinstance(value, bool) for value in values)


def head(column: str, *, numbers: bool) -> str:
    """The head of a column."""
    text = escape(column.removesuffix("_ms").replace("_", " "))
    return f'<th scope="col" class="number">{text}</th>' if numbers else f'<th scope="col">{text}</th>'


def cell(column: str, value: Any, *, numbers: bool) -> str:
    """One value of it."""
    kind = "number" if numbers else "text" if column in _LONG else "word"
    if value is None:
        return f'<td class="{kind} absent">{_ABSENT.get(column, NOTHING)}</td>'
    if column.endswith("_ms"):
        return f'<td class="{kind}" title="{value} ms">{duration(value)}</td>'
    return f'<td class="{kind}">{text(value)}</td>'


def text(value: Any) -> str:
    """A value in a sentence."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value))) or "none"
    return escape(str(value)) or '""'
