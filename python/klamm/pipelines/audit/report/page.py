"""The page: sections of text, plots and tables. Whatever comes from the log is escaped."""

from __future__ import annotations

import datetime
from html import escape
from typing import Any, Final

from klamm.metadata.moments import iso_text
from klamm.pipelines.audit.findings import Finding
from klamm.pipelines.audit.report import svg
from klamm.pipelines.audit.report.figures import BROKERS_MAX, STATES_MAX, STRETCHES, Figures

_NONE: Final = "–"
_DAY_MS: Final = 86_400_000
_NOTES: Final = {
    "elections": "The length is the gap between the last record of the earlier epoch and the leader's first: an idle "
    "leader writes every half second, and two clocks are compared, so it is no exact time without a leader.",
    "broker_states": "Each registration begins a stretch.",
    "leadership": "A partition's first leader, and a leader epoch that goes up with the same leader, are no moves.",
    "unclean_elections": "The new leader was in neither the ISR nor the ELR, or the record says that it has to "
    "recover: what it lacked is lost.",
    "under_replicated": "The ISR was smaller than the replicas, not counting those that a reassignment was adding.",
    "leaderless": "Such a partition takes and gives no records.",
    "isr_churn": "Shrinks: an ISR lost the broker, which stayed a replica. Expands: it gained it.",
    "config_changes": "Secrets, and values of keys that nobody knows, are hidden.",
}


def page(figures: Figures) -> str:
    """The whole file."""
    sections = [
        _head(figures),
        _section(figures, "elections", _leaders(figures)),
        _section(figures, "broker_states", _brokers(figures)),
        _section(figures, "leadership", _moves(figures), _table(figures.moving_topics)),
        _section(figures, "unclean_elections"),
        _section(figures, "under_replicated", _under_replicated(figures)),
        _section(figures, "leaderless"),
        _section(figures, "isr_churn", _churn(figures)),
        _section(figures, "config_changes"),
        _records(figures),
    ]
    title = f"Metadata audit of {escape(figures.log['path'])}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style></head><body><main>",
            *sections,
            "</main></body></html>\n",
        ]
    )


def _head(figures: Figures) -> str:
    log = figures.log
    begins = f"snapshot {log['base_snapshot']}" if log["base_snapshot"] else f"offset {log['start_offset']}"
    numbers = [(one.total, one.title) for one in figures.findings.values()]
    tiles = "".join(f"<li><b>{count:,}</b> {escape(title)}</li>" for count, title in numbers)
    damage = "".join(f"<li>{escape(one)}</li>" for one in log["damage"])
    withheld = "".join(f"<li>offsets {first} to {last}</li>" for first, last in log["withheld_offsets"])
    return "\n".join(
        [
            "<header><h1>Metadata audit</h1>",
            f"<p><code>{escape(log['path'])}</code></p>",
            f"<p>From {escape(begins)} to offset {log['end_offset'] - 1}: {_text(log['start_time'])} to "
            f"{_text(log['end_time'])}, all times in UTC. Epochs, offsets and times are the controllers' own.</p>",
            f'<div class="bad"><p>Damaged; what came before is in this report:</p><ul>{damage}</ul></div>'
            if damage
            else "",
            f"<p>Withheld by metadata transactions, and not counted:</p><ul>{withheld}</ul>" if withheld else "",
            f'<ul class="tiles">{tiles}</ul></header>',
        ]
    )


def _section(figures: Figures, question: str, *parts: str) -> str:
    found = figures.findings[question]
    body = [*parts, _table(found)] if found.total else ['<p class="none">None.</p>']
    note = escape(_NOTES[question])
    return "\n".join(
        [f'<section id="{question}"><h2>{escape(found.title)}</h2><p class="note">{note}</p>', *body, "</section>"]
    )


def _table(found: Finding) -> str:
    heads = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in found.columns)
    rows = [
        "<tr>" + "".join(_cell(name, value) for name, value in zip(found.columns, row, strict=True)) + "</tr>"
        for row in found.rows
    ]
    more = found.total - len(found.rows)
    below = f'<p class="more">and {more:,} more</p>' if more else ""
    return "\n".join(
        [f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>', *rows, f"</tbody></table></div>{below}"]
    )


def _cell(name: str, value: Any) -> str:
    if name.endswith("_ms") and value is not None:
        return f'<td class="number" title="{value} ms">{_duration(value)}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    return f"<td>{_text(value)}</td>"


def _text(value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value))) or "[]"
    return escape(str(value))


def _duration(duration_ms: int) -> str:
    sign, left = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    for unit, size in (("d", _DAY_MS), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if left >= size:
            return f"{sign}{left / size:.1f} {unit}"
    return f"{sign}{left} ms"


# Plots


def _times(figures: Figures) -> list[str]:
    """Where each stretch begins, and the end."""
    start, end = figures.period
    is_long = end - start > _DAY_MS
    texts = []
    for number in range(STRETCHES + 1):
        time = datetime.datetime.fromtimestamp((start + number * figures.period.width_ms) / 1000, datetime.UTC)
        texts.append(f"{time:%m-%d %H:%M}" if is_long else f"{time:%H:%M:%S}")
    return texts


def _part(figures: Figures, time_ms: int | None, default: float = 1.0) -> float:
    """A time as a part of the period."""
    if time_ms is None:
        return default
    span = figures.period.width_ms * STRETCHES
    return min(max((time_ms - figures.period.start_ms) / span, 0.0), 1.0)


def _leaders(figures: Figures) -> str:
    bars = [
        svg.Bar(
            f"node {leader}",
            "leader",
            _part(figures, start),
            _part(figures, end),
            f"node {leader} led epoch {epoch} from {iso_text(start)}",
        )
        for epoch, leader, start, end in figures.leaders
    ]
    return svg.timeline(bars, _times(figures), "who led the quorum") if bars else ""


def _brokers(figures: Figures) -> str:
    shown = sorted({broker for broker, *_ in figures.brokers})[:BROKERS_MAX]
    bars = [
        svg.Bar(
            f"broker {broker}",
            state,
            _part(figures, start),
            _part(figures, end),
            f"broker {broker} {state} from {iso_text(start)} to {_NONE if end is None else iso_text(end)}",
        )
        for broker, state, start, end in figures.brokers
        if broker in shown
    ]
    whole = len(figures.brokers) < STATES_MAX and len(shown) == len({broker for broker, *_ in figures.brokers})
    more = "" if whole else '<p class="more">The plot shows the first of them only.</p>'
    plot = svg.timeline(bars, _times(figures), "states of brokers")
    return svg.legend(["active", "fenced", "shutting down", "unregistered"]) + plot + more


def _moves(figures: Figures) -> str:
    return svg.legend(list(figures.moves)) + svg.columns(figures.moves, _times(figures), "leaders that moved")


def _under_replicated(figures: Figures) -> str:
    series = {"under-replicated": figures.under_replicated}
    plot = svg.columns(series, _times(figures), "under-replicated partitions")
    return '<p class="note">Partitions that were so at some time of each stretch.</p>' + plot


def _churn(figures: Figures) -> str:
    rows = [
        (f"broker {broker}", {"shrinks": shrinks, "expands": expands}) for broker, shrinks, expands in figures.churn
    ]
    return svg.legend(["shrinks", "expands"]) + svg.pairs(rows, "shrinks and expands by broker")


def _records(figures: Figures) -> str:
    rows = [tuple(one) for one in figures.counts.items()]
    table = _table(Finding("records", "Records", len(rows), ("type", "records"), rows))
    return f'<section id="records"><h2>Records of the log</h2>{table}</section>'


_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d9dee3; --panel: #f5f7f9;
  --blue: #2f6fb5; --green: #3b8f5a; --amber: #c98a1b; --red: #c0392b; --grey: #98a2ad; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e4e8ec; --soft: #9aa5b1; --line: #2e353c;
  --panel: #1c2126; --blue: #6aa5e6; --green: #62b982; --amber: #e0aa45; --red: #ea6f61; --grey: #6b7682; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0 0 4px; }
section { margin: 36px 0 0; padding: 20px 0 0; border-top: 1px solid var(--line); }
code { background: var(--panel); padding: 1px 5px; border-radius: 4px; overflow-wrap: anywhere; }
.note, .more, .none, .legend { color: var(--soft); margin: 4px 0 10px; font-size: 14px; }
.bad { border-left: 4px solid var(--red); background: var(--panel); padding: 6px 14px; overflow-wrap: anywhere; }
.tiles { list-style: none; padding: 0; display: grid; gap: 10px;
  grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); }
.tiles li { background: var(--panel); border-radius: 8px; padding: 10px 14px; color: var(--soft); font-size: 13px; }
.tiles b { display: block; font-size: 22px; color: var(--ink); }
svg { width: 100%; height: auto; display: block; margin: 6px 0 14px; }
.axis { fill: var(--soft); font-size: 11px; } .grid { stroke: var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; margin: 0 0 6px; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } .number { white-space: nowrap; font-variant-numeric: tabular-nums; }
.legend span { margin-right: 16px; padding-left: 16px;
  background: linear-gradient(var(--key), var(--key)) left / 11px 11px no-repeat; }
.k-active, .k-regained, .k-expands { fill: var(--green); --key: var(--green); }
.k-leader, .k-moved { fill: var(--blue); --key: var(--blue); }
.k-shutting-down, .k-lost, .k-under-replicated { fill: var(--amber); --key: var(--amber); }
.k-fenced, .k-unclean, .k-shrinks { fill: var(--red); --key: var(--red); }
.k-unregistered { fill: var(--grey); --key: var(--grey); }
"""
