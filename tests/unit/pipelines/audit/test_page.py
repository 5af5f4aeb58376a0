"""The page of a report, of numbers that are made up: ten thousand topics, hostile names, nothing at all."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, Finding
from klamm.pipelines.audit.report.figures import STRETCHES, Figures, Period
from klamm.pipelines.audit.report.page import page

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


def figures(total: int) -> Figures:
    def finding(question: str) -> Finding:
        columns = SUBJECTS[question].columns
        row = tuple(VALUES.get(name, 7) for name in columns)
        return Finding(question, SUBJECTS[question].title, total, columns, [row] * min(total, 20))

    some = [number % 5 if total else 0 for number in range(STRETCHES)]
    log = {
        "path": HOSTILE,
        "start_offset": 0,
        "end_offset": 1000,
        "start_time": "2026-11-21T08:13:00.286Z",
        "end_time": None,
        "base_snapshot": None,
        "snapshots": [],
        "withheld_offsets": [[1, 2]] if total else [],
        "damage": [HOSTILE] if total else [],
    }
    columns = ("topic", "moves", "partitions", "unclean", "last_time")
    return Figures(
        log,
        Period(START, START + 3_600_000),
        {question: finding(question) for question in OVERVIEW},
        {"NoOpRecord": 5} if total else {},
        {"moved": some, "lost": some, "regained": some, "unclean": some},
        Finding("leadership", "Topics", total, columns, [(HOSTILE, 3, 2, 1, None)] * min(total, 20)),
        some,
        [(broker, "active", START, None) for broker in range(50)] if total else [],
        [(1, 10, 9), (2, 0, 1)] if total else [],
        [(1, 1, START, START + 1000), (3, 2, START + 2000, START + 3_600_000)] if total else [],
    )


class Tags(HTMLParser):
    """Whether each tag is closed where it should be."""

    EMPTY = frozenset({"meta", "line", "!doctype"})

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
    assert "and 9,980 more" in text
    assert "1.0 d" in text
    assert len(text) < 200_000, "as many rows as are asked for, however many there are"


def test_plots_are_well_formed() -> None:
    text = page(figures(10_000))
    plots = ["<svg" + part.partition("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
    assert len(plots) == 5
    for plot in plots:
        root = ElementTree.fromstring(plot)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for shape in root.iter("rect"):
            x, y, wide, high = (float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + wide <= width + 1
            assert 0 <= y <= y + high <= height


def test_nothing_happened() -> None:
    text = page(figures(0))
    assert text.count("None.") == len(OVERVIEW)
    assert "Damaged" not in text
