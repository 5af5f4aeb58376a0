"""Values as the cells of a table have them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Final

NOTHING: Final = "–"
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
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
    "epochs_between": "not known",
    "length_ms": "not known",
    "topic": "name not known",
}
"""What it means that there is no value."""
_LONG: Final = frozenset({"topic", "resource_name", "name", "before", "after"})
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


def duration(duration_ms: int) -> str:
    """In the largest unit of which it is one at least."""
    sign, left = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    for unit, size in _UNITS:
        if left >= size:
            return f"{sign}{left / size:.1f} {unit}"
    return f"{sign}{left} ms"
