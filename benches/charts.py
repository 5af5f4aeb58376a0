"""The charts of the documentation, drawn from the samples of a run.

A bar is a median; the line in it extends from the smallest to the largest sample.

`python -m benches.charts` draws them from the newest complete run, `make bench BENCH_ARGS=--publish` from a new one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from benches.goals import CEILING, KAFKA, KLAMM
from benches.report import ASSETS, RESULTS, number

WIDTH: Final = 480
BARS_WIDTH: Final = 390
"""The length of the longest bar; the rest of the width is for its value."""
LEFT: Final = 10
BAR_HEIGHT: Final = 13
NAMES: Final = {KAFKA: "Apache Kafka 4.3.1", KLAMM: "klamm", CEILING: "ceiling"}
STYLE: Final = """
text { font-family: system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.note, .value { font-size: 13px; }
.note { fill: #59636e; }
.label { font-size: 14px; }
.kafka { fill: #8c959f; }
.klamm { fill: #3f51b5; }
.ceiling { fill: none; stroke: #59636e; stroke-dasharray: 3 2; }
.halo { stroke: #ffffff; stroke-opacity: 0.6; stroke-width: 3; }
.range { stroke: #1f2328; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .kafka { fill: #6e7681; }
  .klamm { fill: #7986cb; }
  .ceiling { stroke: #9198a1; }
  .halo { stroke: #0d1117; }
  .range { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of a row, by its names in the results, and its label for readers."""

    label: str
    row: str
    figure: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Figures with one unit. `name` is the file name without its extension."""

    name: str
    title: str
    note: str
    lines: Sequence[Line]


CHARTS: Final = (
    Chart(
        "benchmarks-throughput",
        "Throughput",
        "GB/s, more is better; durable: synced before each acknowledgement",
        (
            Line("produce, records of 1 KiB, page cache", "produce 1 KiB, page cache", "GB/s"),
            Line("produce, records of 1 KiB, durable", "produce 1 KiB, durable", "GB/s"),
            Line("produce, records of 100 B, page cache", "produce 100 B, page cache", "GB/s"),
            Line("fetch, records of 1 KiB", "fetch 1 KiB", "GB/s"),
            Line("fetch, records of 100 B", "fetch 100 B", "GB/s"),
            Line("small keyed batches, 50 producers", "keyed small batches", "50 producers, GB/s"),
        ),
    ),
    Chart(
        "benchmarks-cpu",
        "Processor time of the broker",
        "CPU seconds per GB, less is better",
        (
            Line("produce, records of 1 KiB, page cache", "produce 1 KiB, page cache", "CPU-s/GB"),
            Line("produce, records of 100 B, page cache", "produce 100 B, page cache", "CPU-s/GB"),
            Line("fetch, records of 1 KiB", "fetch 1 KiB", "CPU-s/GB"),
            Line("fetch, records of 100 B", "fetch 100 B", "CPU-s/GB"),
        ),
    ),
    Chart(
        "benchmarks-latency",
        "Time to an acknowledgement",
        "microseconds at 1,000 records a second, less is better",
        (
            Line("page cache, p50", "acknowledgement at 1,000/s, page cache", "p50 us"),
            Line("page cache, p99", "acknowledgement at 1,000/s, page cache", "p99 us"),
            Line("durable, p50", "acknowledgement at 1,000/s, durable", "p50 us"),
            Line("durable, p99", "acknowledgement at 1,000/s, durable", "p99 us"),
        ),
    ),
    Chart(
        "benchmarks-metadata",
        "Creating a topic",
        "milliseconds, less is better; durable in each case",
        (
            Line("one controller, p50", "create one topic", "p50 ms"),
            Line("three controllers, p50", "create one topic, three controllers", "p50 ms"),
            Line(
                "three controllers and 4,000 topics, p50",
                "create one topic, three controllers",
                "p50 at 4,000 topics ms",
            ),
        ),
    ),
    Chart(
        "benchmarks-start",
        "Starting and recovering",
        "milliseconds, less is better",
        (
            Line("start: first acknowledged record", "start", "first acknowledged record ms"),
            Line("the same, embedded in a process", "start, embedded in a process", "first acknowledged record ms"),
            Line("restart with 6,000 partitions", "6,000 partitions", "restart: first acknowledged record ms"),
            Line(
                "restart after kill -9 under load",
                "restart after kill -9 under load, 220 MB in segments of 1 MiB",
                "first acknowledged record ms",
            ),
            Line(
                "active controller killed: next metadata write",
                "kill -9 of the active controller of three: next metadata write",
                "median ms",
            ),
        ),
    ),
    Chart(
        "benchmarks-memory",
        "Resident memory",
        "MB, less is better",
        (
            Line("idle", "start", "resident MB, idle"),
            Line("6,000 partitions", "6,000 partitions", "resident MB"),
            Line("10 GB produced and fetched", "10 GB in and out, durable (K: page cache)", "resident MB"),
        ),
    ),
)


def draw(chart: Chart, results: Mapping[str, Any]) -> str:
    """The chart of those results as an SVG, in the colours of the reader's light or dark scheme."""
    rows = {row["name"]: row for row in results["rows"]}
    shown = [(line, _bars(rows[line.row], line.figure)) for line in chart.lines if line.row in rows]
    longest = max((most for _, bars in shown for _, _, _, most in bars), default=1.0)
    columns = [name for name in NAMES if any(name == column for _, bars in shown for column, *_ in bars)]
    parts, top = [*_head(chart, columns)], 78
    for line, bars in shown:
        parts.append(f'<text class="label" x="{LEFT}" y="{top}">{escape(line.label)}</text>')
        top += 7
        for bar in bars:
            parts += _bar(*bar, scale=BARS_WIDTH / longest, top=top)
            top += BAR_HEIGHT + 4
        top += 18
    said = "; ".join(
        f"{line.label}: {', '.join(f'{NAMES[column]} {number(median)}' for column, median, *_ in bars)}"
        for line, bars in shown
    )
    height = top - 8
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    about = f"<title>{escape(chart.title)}</title><desc>{escape(chart.note)}. {escape(said)}</desc>"
    return "\n".join([head, about, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def _head(chart: Chart, columns: Sequence[str]) -> Iterator[str]:
    yield f'<text class="title" x="{LEFT}" y="20">{escape(chart.title)}</text>'
    yield f'<text class="note" x="{LEFT}" y="38">{escape(chart.note)}</text>'
    left = LEFT
    for column in columns:
        yield f'<rect class="{column}" x="{left + 0.5}" y="47.5" width="11" height="11"/>'
        yield f'<text class="note" x="{left + 17}" y="58">{NAMES[column]}</text>'
        left += 34 + 8 * len(NAMES[column])


def _bars(row: Mapping[str, Any], figure: str) -> list[tuple[str, float, float, float]]:
    """Name, median, minimum and maximum of each measured server."""
    found = []
    for column in NAMES:
        median = row["medians"].get(column, {}).get(figure)
        if median is not None:
            values = [sample[figure] for sample in row["samples"][column] if figure in sample]
            found.append((column, median, min(values), max(values)))
    return found


def _bar(column: str, median: float, least: float, most: float, *, scale: float, top: int) -> Iterator[str]:
    end, middle, width = LEFT + median * scale, top + BAR_HEIGHT / 2, max(median * scale, 1)
    yield f'<rect class="{column}" x="{LEFT + 0.5}" y="{top + 0.5}" width="{width:.1f}" height="{BAR_HEIGHT}"/>'
    if most > least:
        ends = f'x1="{LEFT + least * scale:.1f}" x2="{LEFT + most * scale:.1f}" y1="{middle}" y2="{middle}"'
        yield f'<line class="halo" {ends}/><line class="range" {ends}/>'
    after = max(end, LEFT + most * scale) + 6
    yield f'<text class="value" x="{after:.1f}" y="{top + 12}">{number(median)}</text>'


def newest(folder: Path = RESULTS) -> dict[str, Any]:
    """The results of the newest complete run. Raises FileNotFoundError when there is none."""
    runs = sorted(path for path in folder.glob("*.json") if path.stem.replace("-", "").isdigit())
    if not runs:
        raise FileNotFoundError(f"no results of a whole run in {folder}")
    return dict(json.loads(runs[-1].read_text()))


def write(results: Mapping[str, Any], folder: Path = ASSETS) -> None:
    """Write every chart of the results."""
    for chart in CHARTS:
        (folder / f"{chart.name}.svg").write_text(draw(chart, results))


if __name__ == "__main__":
    write(newest())
    sys.exit(0)
