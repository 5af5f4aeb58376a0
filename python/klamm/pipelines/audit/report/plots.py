"""The plots of the page, of the figures that they show."""

from __future__ import annotations

import datetime
from typing import Final

from klamm.metadata.log.moments import iso_text
from klamm.pipelines.audit.durations import duration
from klamm.pipelines.audit.report import svg
from klamm.pipelines.audit.report.figures import Figures
from klamm.pipelines.audit.report.period import STRETCHES, Period

_MS_SHOWN_BELOW_MS: Final = 10_000


def leaders(figures: Figures) -> str:
    """The leaders of the quorum, a row per node."""
    bars = [
        svg.Bar(
            f"node {leader}",
            "leader",
            figures.period.part(start),
            figures.period.part(end),
            f"node {leader} led epoch {epoch} from {iso_text(start)} to {iso_text(end)}",
        )
        for epoch, leader, start, end in figures.leaders
    ]
    return svg.timeline(bars, _time(figures.period), "who led the quorum, over time") if bars else ""


def brokers(figures: Figures) -> str:
    """What state each broker was in."""
    found = figures.brokers
    bars = [
        svg.Bar(
            f"broker {broker}",
            state,
            figures.period.part(start),
            figures.period.part(end),
            f"broker {broker} {state} from {iso_text(start)} to {'the end' if end is None else iso_text(end)}",
        )
        for broker, state, start, end in found.states
    ]
    shown = len({broker for broker, *_ in found.states})
    notes = []
    if shown < found.total:
        notes.append(f"The {shown} of {found.total:,} brokers with the most stretches are drawn.")
    if found.is_cut:
        notes.append(f"Of each broker the newest {found.newest} stretches are drawn.")
    plot = svg.timeline(bars, _time(figures.period), "states of brokers, over time")
    more = "".join(f'<p class="more">{note}</p>' for note in notes)
    return svg.legend(["active", "fenced", "shutting down", "unregistered"]) + plot + more


def moves(figures: Figures) -> str:
    """When leaders moved."""
    plot = svg.columns(figures.moves, _time(figures.period, "column"), "moves", "leaders that moved, over time")
    return svg.legend(list(figures.moves)) + plot


def under_replicated(figures: Figures) -> str:
    """How many partitions were so, over time."""
    return _of_partitions(figures, "under-replicated", figures.under_replicated)


def leaderless(figures: Figures) -> str:
    """The same of those without a leader."""
    return _of_partitions(figures, "without a leader", figures.leaderless)


def churn(figures: Figures) -> str:
    """How often ISRs lost and gained each broker."""
    found = figures.churn
    rows = [
        (f"broker {broker}", {"shrinks": shrinks, "expands": expands}) for broker, shrinks, expands in found.brokers
    ]
    more = ""
    if len(rows) < found.total:
        more = f'<p class="more">The {len(rows)} of {found.total:,} brokers with the most of them are drawn.</p>'
    plot = svg.pairs(rows, "changes of ISRs", "shrinks and expands of ISRs, by broker")
    return svg.legend(["shrinks", "expands"]) + plot + more


def _of_partitions(figures: Figures, kind: str, counts: list[int]) -> str:
    plot = svg.columns({kind: counts}, _time(figures.period, "column"), "partitions", f"partitions {kind}, over time")
    return f'<p class="note">The plot: partitions that were {kind} at some time of each column.</p>' + plot


def _time(period: Period, stretch: str = "") -> svg.Time:
    """The time scale, UTC; `stretch`: the plot's name for an interval."""
    moments = [
        datetime.datetime.fromtimestamp((period.start_ms + number * period.width_ms) / 1000, datetime.UTC)
        for number in range(STRETCHES + 1)
    ]
    days = {moment.date() for moment in moments}
    if len(days) > 1:
        texts, caption = [f"{moment:%Y-%m-%d %H:%M}" for moment in moments], "UTC"
    elif period.width_ms * STRETCHES < _MS_SHOWN_BELOW_MS:
        texts = [f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}" for moment in moments]
        caption = f"{moments[0]:%Y-%m-%d}, UTC"
    else:
        texts, caption = [f"{moment:%H:%M:%S}" for moment in moments], f"{moments[0]:%Y-%m-%d}, UTC"
    return svg.Time(texts, f"{caption}; a {stretch} is {duration(period.width_ms)}" if stretch else caption)
