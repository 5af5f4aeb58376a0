"""Small plots as inline SVG. Colours are classes, which the page's style sheet gives for light and for dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 760
LEFT: Final = 64
_RIGHT, _TOP, _BOTTOM = 12, 10, 24
_HEIGHT: Final = 170
_ROW: Final = 20
_TICKS: Final = 4


class Bar(NamedTuple):
    """A stretch of time in a row of a timeline."""

    row: str
    kind: str
    start: float
    end: float
    """Both as parts of the width, 0 to 1."""
    title: str


def columns(series: Mapping[str, Sequence[int]], times: Sequence[str], what: str) -> str:
    """Stacked columns over time; `times` has a text for each column and one for the end."""
    count = len(times) - 1
    totals = [sum(values[at] for values in series.values()) for at in range(count)]
    top = max([1, *totals])
    width = (WIDTH - LEFT - _RIGHT) / count
    shapes = []
    for at in range(count):
        below = 0
        for name, values in series.items():
            if values[at]:
                y, height = _y(below + values[at], top), _y(below, top) - _y(below + values[at], top)
                title = f"{values[at]} {name}, {times[at]} to {times[at + 1]}"
                shapes.append(_rect(name, LEFT + at * width, y, max(width - 1, 0.5), height, title))
                below += values[at]
    return _plot([*_grid(top), *shapes, *_time_axis(times, _HEIGHT)], _HEIGHT, what)


def timeline(bars: Sequence[Bar], times: Sequence[str], what: str) -> str:
    """A row for each name with its stretches."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    height = _TOP + _ROW * len(rows) + _BOTTOM
    inner = WIDTH - LEFT - _RIGHT
    shapes = []
    for at, row in enumerate(rows):
        y = _TOP + at * _ROW
        shapes.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 13}" text-anchor="end">{escape(row)}</text>')
        for bar in (one for one in bars if one.row == row):
            width = max((bar.end - bar.start) * inner, 1)
            shapes.append(_rect(bar.kind, LEFT + bar.start * inner, y + 2, width, _ROW - 5, bar.title))
    return _plot([*shapes, *_time_axis(times, height)], height, what)


def pairs(rows: Sequence[tuple[str, Mapping[str, int]]], what: str) -> str:
    """Two or more horizontal bars for each name."""
    most = max([1, *(value for _, values in rows for value in values.values())])
    inner = WIDTH - LEFT - _RIGHT - 60
    shapes, y = [], float(_TOP)
    for name, values in rows:
        shapes.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 13:.1f}" text-anchor="end">{escape(name)}</text>')
        for kind, value in values.items():
            width = value / most * inner
            shapes.append(_rect(kind, LEFT, y, max(width, 0.5), 8, f"{name}: {value} {kind}"))
            shapes.append(f'<text class="axis" x="{LEFT + width + 5:.1f}" y="{y + 8:.1f}">{value}</text>')
            y += 10
        y += 6
    return _plot(shapes, int(y) + _TOP, what)


def legend(kinds: Sequence[str]) -> str:
    """Which colour is what."""
    return (
        '<p class="legend">' + "".join(f'<span class="{_class(kind)}">{escape(kind)}</span>' for kind in kinds) + "</p>"
    )


def _plot(shapes: Sequence[str], height: int, what: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">'
    return "\n".join([head, *shapes, "</svg>"])


def _rect(kind: str, x: float, y: float, width: float, height: float, title: str) -> str:  # noqa: PLR0917
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{_class(kind)}" {place}><title>{escape(title)}</title></rect>'


def _class(kind: str) -> str:
    return "k-" + "".join(letter if letter.isalnum() else "-" for letter in kind)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(top: int) -> list[str]:
    shapes = []
    for value in sorted({round(top * part / 2) for part in range(3)}):
        y = _y(value, top)
        shapes.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,}</text>')
    return shapes


def _time_axis(times: Sequence[str], height: int) -> list[str]:
    """Some of the times below."""
    last = len(times) - 1
    shapes = []
    for tick in range(_TICKS + 1):
        x = LEFT + tick / _TICKS * (WIDTH - LEFT - _RIGHT)
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        text = times[round(tick / _TICKS * last)]
        shapes.append(f'<text class="axis" x="{x:.1f}" y="{height - 6}" text-anchor="{anchor}">{escape(text)}</text>')
    return shapes
