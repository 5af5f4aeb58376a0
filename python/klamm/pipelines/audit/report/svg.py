"""Small plots as inline SVG: scales with numbers, times and labels, and fills that also differ without colour.

A fill is a class, which the page's style sheet gives a colour for light and for dark, and a pattern (`style`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 760
_RIGHT, _TOP = 16, 10
_BOTTOM: Final = 40
"""Room for the texts of the time and for its caption."""
_HEIGHT: Final = 190
_ROW: Final = 20
_BAR: Final = 9
_TICKS: Final = 4
_LETTER: Final = 6.2
"""About how wide a letter of a scale is."""


class Time(NamedTuple):
    """The time below a plot."""

    texts: Sequence[str]
    """Where each stretch begins, and the end."""
    caption: str


class Bar(NamedTuple):
    """A stretch of time in a row of a timeline."""

    row: str
    kind: str
    start: float
    end: float
    """Both as parts of the width, 0 to 1."""
    title: str


def columns(series: Mapping[str, Sequence[int]], time: Time, unit: str, what: str) -> str:
    """Stacked columns over time, one per interval; `unit` is the label of the counts."""
    count = len(time.texts) - 1
    totals = [sum(values[at] for values in series.values()) for at in range(count)]
    top = max([1, *totals])
    left = 28 + _LETTER * len(f"{top:,}")
    width = (WIDTH - left - _RIGHT) / count
    shapes = []
    for at in range(count):
        below = 0
        for name, values in series.items():
            if values[at]:
                y, height = _y(below + values[at], top), _y(below, top) - _y(below + values[at], top)
                title = f"{values[at]:,} {name}, {time.texts[at]} to {time.texts[at + 1]}"
                shapes.append(_rect(name, left + at * width, y, max(width - 1, 0.5), height, title))
                below += values[at]
    return _plot([*_scale(top, left, unit), *shapes, *_time_scale(time, left, _HEIGHT)], _HEIGHT, what)


def timeline(bars: Sequence[Bar], time: Time, what: str) -> str:
    """A row for each name with its stretches."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    height = _TOP + _ROW * len(rows) + _BOTTOM
    left = _room_for(rows)
    inner = WIDTH - left - _RIGHT
    shapes = []
    for at, row in enumerate(rows):
        y = _TOP + at * _ROW
        shapes.append(_text(left - 6, y + 13, row, "end"))
        shapes.append(_line(left, WIDTH - _RIGHT, y + _ROW - 1))
        for bar in (one for one in bars if one.row == row):
            width = max((bar.end - bar.start) * inner, 1)
            x = min(left + bar.start * inner, WIDTH - _RIGHT - width)
            shapes.append(_rect(bar.kind, x, y + 2, width, _ROW - 5, bar.title))
    return _plot([*shapes, *_time_scale(time, left, height)], height, what)


def pairs(rows: Sequence[tuple[str, Mapping[str, int]]], unit: str, what: str) -> str:
    """Two or more horizontal bars for each name, with their numbers."""
    most = max([1, *(value for _, values in rows for value in values.values())])
    left = _room_for([name for name, _ in rows])
    inner = WIDTH - left - _RIGHT - 10 - _LETTER * len(f"{most:,}")
    shapes, y = [], float(_TOP)
    for name, values in rows:
        middle = y + len(values) * (_BAR + 1) / 2 + 4
        shapes.append(_text(left - 6, middle, name, "end"))
        for kind, value in values.items():
            width = value / most * inner
            shapes.append(_rect(kind, left, y, max(width, 0.5), _BAR, f"{name}: {value:,} {kind}"))
            shapes.append(_text(left + width + 5, y + _BAR - 0.5, f"{value:,}"))
            y += _BAR + 1
        y += 7
    shapes.append(_text((left + WIDTH - _RIGHT) / 2, y + 10, unit, "middle"))
    return _plot(shapes, int(y) + 18, what)


def legend(kinds: Sequence[str]) -> str:
    """Which fill is what."""
    swatch = (
        '<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true"><rect class="{}" width="14" height="14"/></svg>'
    )
    keys = "".join(f"<span>{swatch.format(_class(kind))}{escape(kind)}</span>" for kind in kinds)
    return f'<p class="legend">{keys}</p>'


def _room_for(rows: Sequence[str]) -> float:
    """How far from the left a plot begins with these names in front."""
    return 12 + _LETTER * max(map(len, rows), default=0)


def _plot(shapes: Sequence[str], height: int, what: str) -> str:
    head = f'<div class="wide"><svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">'
    return "\n".join([head, *shapes, "</svg></div>"])


def _rect(kind: str, x: float, y: float, width: float, height: float, title: str) -> str:  # noqa: PLR0917
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{_class(kind)}" {place}><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="axis" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(start: float, end: float, y: float) -> str:
    return f'<line class="grid" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _class(kind: str) -> str:
    return "k-" + "".join(letter if letter.isalnum() else "-" for letter in kind)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _scale(top: int, left: float, unit: str) -> list[str]:
    """Numbers and their label on the left."""
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    shapes = [f'<text class="axis" transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{unit}</text>']
    for value in sorted({round(top * part / 2) for part in range(3)}):
        shapes.append(_line(left, WIDTH - _RIGHT, _y(value, top)))
        shapes.append(_text(left - 6, _y(value, top) + 4, f"{value:,}", "end"))
    return shapes


def _time_scale(time: Time, left: float, height: int) -> list[str]:
    """Some of the times below, and their label."""
    last, bottom = len(time.texts) - 1, height - _BOTTOM + 2
    shapes = [_line(left, WIDTH - _RIGHT, bottom - 2)]
    for tick in range(_TICKS + 1):
        x = left + tick / _TICKS * (WIDTH - left - _RIGHT)
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        shapes.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom - 2}" y2="{bottom + 3}"/>')
        shapes.append(_text(x, bottom + 14, time.texts[round(tick / _TICKS * last)], anchor))
    shapes.append(_text((left + WIDTH - _RIGHT) / 2, height - 8, time.caption, "middle"))
    return shapes
