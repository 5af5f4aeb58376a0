"""The page of a report with invented numbers: ten thousand topics, hostile names, no data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, Finding
from klamm.pipelines.audit.report.figures import BrokerStates, Churn, Figures
from klamm.pipelines.audit.report.page import page
from klamm.pipelines.audit.report.period import STRETCHES, Period

HOSTILE = "<script>alert('&')</script>"
START = 1_795_248_780_286
VALUES = {
    "topic": HOSTILE,
    "resource_name": HOSTILE,
    "before": HOSTILE,
    "after": None,
    "timestamp": "2026-11-21T08:13:00.286Z",
    "missing": [1, 2],
    "isr": [],
    "duration_ms": 90_061_000,
    "is_unclean": True,
    "state": "fenced",
}


STATES = ("active", "fenced", "shutting down", "unregistered")


def figures(total: int, length_ms: int = 3_600_000) -> Figures:
    def rows(columns: tuple[str, ...]) -> list[tuple[object, ...]]:
        return [tuple(VALUES.get(name, 7) for name in columns)] * min(total, 20)

    def finding(question: str) -> Finding:
        subject = SUBJECTS[question]
        return Finding(question, subject.title, total, subject.columns, rows(subject.columns), subject.order_text)

    def summary(*columns: str) -> Finding:
        return Finding("summary", "By something", total, columns, rows(columns), "the most first")

    some = [number % 5 if total else 0 for number in range(STRETCHES)]
    log = {
        "origin": HOSTILE,
        "start_offset": 0,
        "end_offset": 1000,
        "start_time": "2026-11-21T08:13:00.286Z",
        "end_time": None,
        "base_snapshot": None,
        "snapshots": [],
        "withheld_offsets": [[1, 2]] if total else [],
        "damage": [HOSTILE] if total else [],
    }
    states = [(broker, state, START, None) for broker in range(40) for state in STATES]
    return Figures(
        log,
        [f"Topic {HOSTILE} was created."],
        Period(START, START + length_ms),
        {question: finding(question) for question in OVERVIEW},
        {"NoOpRecord": 5} if total else {},
        {"moved": some, "lost": some, "regained": some, "unclean": some},
        summary("topic", "moves", "partitions", "unclean", "last_time"),
        summary("broker", "last_state", "registrations", "times_fenced", "time_fenced_ms", "longest_ms"),
        some,
        some,
        BrokerStates(states if total else [], 50 if total else 0, 100, total > 0),
        Churn([(1, 10, 9), (2, 0, 1)] if total else [], 3 if total else 0),
        [(1, 1, START, START + 1000), (3, 2, START + 2000, START + length_ms)] if total else [],
    )


def plots_of(text: str) -> list[ElementTree.Element]:
    return [
        ElementTree.fromstring('<svg class="plot"' + part.partition("</svg>")[0] + "</svg>")
        for part in text.split('<svg class="plot"')[1:]
    ]


class Tags(HTMLParser):
    """Checks that each tag is closed in its place."""

    EMPTY = frozenset({"meta", "!doctype"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_names_are_no_markup_and_every_tag_is_closed() -> None:
    text = page(figures(10_000))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in text
    assert "The first 20 of 10,000, the newest first." in text
    assert "1.0 d" in text
    assert "not set" in text
    assert len(text) < 200_000, "as many rows as are asked for, however many there are"


def test_plots_are_well_formed_and_labelled() -> None:
    text = page(figures(10_000))
    plots = plots_of(text)
    assert len(plots) == 6
    for plot in plots:
        width, height = map(float, plot.attrib["viewBox"].split()[2:])
        for shape in plot.iter("rect"):
            x, y, wide, high = (float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + wide <= width + 1
            assert 0 <= y <= y + high <= height
            [title] = shape
            assert title.text
        texts = [shape.text or "" for shape in plot.iter("text")]
        assert any("UTC" in one for one in texts) or "changes of ISRs" in texts
    units = {one.text for plot in plots for one in plot.iter("text") if "rotate" in one.attrib.get("transform", "")}
    assert units == {"moves", "partitions"}
    assert "The 40 of 50 brokers with the most stretches are drawn." in text
    assert "The 2 of 3 brokers with the most of them are drawn." in text


def test_no_area_is_distinguished_by_colour_alone() -> None:
    text = page(figures(10_000))
    style = text.partition("<style>")[2].partition("</style>")[0]
    kinds = set(re.findall(r'<rect class="k-([a-z-]+)"', text))
    looks = dict(re.findall(r"\.k-([a-z-]+) \{ fill: (.*?); \}", style))
    assert kinds <= set(looks)
    for pattern in re.findall(r"url\(#([a-z-]+)\)", style):
        assert f'id="{pattern}"' in text
    for together in (STATES, ("moved", "lost", "regained", "unclean"), ("shrinks", "expands")):
        patterned = [looks[kind.replace(" ", "-")].startswith("url") for kind in together]
        assert patterned.count(False) == 1, "only the usual state has no pattern"
        assert all(f"</svg>{kind}</span>" in text for kind in together), "in a legend"


@pytest.mark.parametrize(
    ("length_ms", "first", "caption"),
    [
        (0, "08:13:00.286", "2026-11-21, UTC"),
        (3_600_000, "08:13:00", "2026-11-21, UTC"),
        (90 * 86_400_000, "2026-11-21 08:13", "UTC"),
    ],
)
def test_times_have_the_necessary_precision(length_ms: int, first: str, caption: str) -> None:
    for plot in plots_of(page(figures(1, length_ms)))[:2]:
        texts = [shape.text for shape in plot.iter("text")]
        assert first in texts
        assert caption in texts


def test_nothing_happened() -> None:
    text = page(figures(0))
    assert text.count('class="none">None: ') == len(OVERVIEW) + 1
    assert "Damaged" not in text
    assert plots_of(text) == []
