"""The page: sections of text, plots and tables. Whatever comes from the log is escaped."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

from klamm.pipelines.audit.findings import Finding
from klamm.pipelines.audit.report import plots
from klamm.pipelines.audit.report.cells import cell, head, is_of_numbers, text
from klamm.pipelines.audit.report.figures import Figures
from klamm.pipelines.audit.report.style import PATTERNS, STYLE

_NOTES: Final = {
    "incidents": "Moves of leaders and shrinks of ISRs that have one cause. Without a record as their cause they "
    "belong together up to a gap of a minute. Returned: leaders and replicas that were there again.",
    "topic_changes": "Created, grown: the number of partitions before and after.",
    "elections": "The length is the gap between the last record of the earlier epoch and the leader's first: an idle "
    "leader writes every half second, and two clocks are compared, so it is no exact time without a leader.",
    "broker_states": "Each registration begins a stretch.",
    "leadership": "A partition's first leader, and a leader epoch that goes up with the same leader, are no moves.",
    "unclean_elections": "The new leader was in neither the ISR nor the ELR, or the record says that it has to "
    "recover: what it lacked is lost.",
    "under_replicated": "The ISR was smaller than the replicas, not counting those that a reassignment was adding.",
    "leaderless": "Such a partition takes and gives no records.",
    "isr_churn": "Shrinks: an ISR lost the broker, which stayed a replica. Expands: it gained it. Removed: it left "
    "with its replica, by a reassignment.",
    "config_changes": "Secrets, and values of unknown keys, are hidden.",
}
_TILES: Final = {
    "incidents": "causes of trouble",
    "topic_changes": "topics created, grown or deleted",
    "elections": "elections of the quorum",
    "broker_states": "stretches of brokers' lives",
    "leadership": "moves of leaders",
    "unclean_elections": "unclean elections",
    "under_replicated": "stretches of under-replicated partitions",
    "leaderless": "stretches of partitions without a leader",
    "isr_churn": "brokers that left or entered ISRs",
    "config_changes": "changes of configs",
}
_NONE: Final = {
    "incidents": "None: no leader moved, and no ISR shrank.",
    "topic_changes": "None: no topic was created, grew or was deleted.",
    "elections": "None: the log has no record of an election.",
    "broker_states": "None: the log names no broker.",
    "leadership": "None: no leader moved.",
    "unclean_elections": "None: no leader was elected uncleanly.",
    "under_replicated": "None: every ISR was whole all the time.",
    "leaderless": "None: every partition had a leader all the time.",
    "isr_churn": "None: no ISR lost or gained a broker.",
    "config_changes": "None: no config was changed.",
}


def page(figures: Figures) -> str:
    """The whole file."""
    sections = [
        _section(figures, "incidents"),
        _section(figures, "elections", plots.leaders),
        _section(figures, "broker_states", plots.brokers, figures.fenced_brokers),
        _section(figures, "leadership", plots.moves, figures.moving_topics),
        _section(figures, "unclean_elections"),
        _section(figures, "under_replicated", plots.under_replicated),
        _section(figures, "leaderless", plots.leaderless),
        _section(figures, "isr_churn", plots.churn),
        _section(figures, "topic_changes"),
        _section(figures, "config_changes"),
        _records(figures),
    ]
    title = f"Metadata audit of {escape(figures.log['origin'])}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style></head><body>{PATTERNS}<main>",
            _head(figures),
            *sections,
            "</main></body></html>\n",
        ]
    )


def _head(figures: Figures) -> str:
    log = figures.log
    begins = f"snapshot {log['base_snapshot']}" if log["base_snapshot"] else f"offset {log['start_offset']}"
    tiles = "".join(
        f'<li><a href="#{question}"><b>{found.total:,}</b> {escape(_TILES[question])}</a></li>'
        for question, found in figures.findings.items()
    )
    summary = "".join(f"<li>{escape(one)}</li>" for one in figures.summary)
    damage = "".join(f"<li>{escape(one)}</li>" for one in log["damage"])
    withheld = "".join(f"<li>offsets {first} to {last}</li>" for first, last in log["withheld_offsets"])
    return "\n".join(
        [
            "<header><h1>Metadata audit</h1>",
            f"<p><code>{escape(log['origin'])}</code></p>",
            f"<p>From {escape(begins)} to offset {log['end_offset'] - 1}: {text(log['start_time'])} to "
            f"{text(log['end_time'])}, all times in UTC. Epochs, offsets and times are the controllers' own.</p>",
            f'<ul class="summary">{summary}</ul>',
            f'<div class="bad"><p>Damaged; what came before is in this report:</p><ul>{damage}</ul></div>'
            if damage
            else "",
            f"<p>Withheld by metadata transactions, and not counted:</p><ul>{withheld}</ul>" if withheld else "",
            f'<ul class="tiles">{tiles}</ul></header>',
        ]
    )


def _section(figures: Figures, question: str, plot: Callable[[Figures], str] | None = None, *more: Finding) -> str:
    found = figures.findings[question]
    if found.total:
        body = [plot(figures)] if plot is not None else []
        body += [f"<h3>{escape(one.title)}</h3>{_table(one)}" for one in more]
        body += ["<h3>Each of them</h3>" if more else "", _table(found)]
    else:
        body = [f'<p class="none">{_NONE[question]}</p>']
    note = escape(_NOTES[question])
    return "\n".join(
        [f'<section id="{question}"><h2>{escape(found.title)}</h2><p class="note">{note}</p>', *body, "</section>"]
    )


def _records(figures: Figures) -> str:
    rows = list(figures.counts.items())
    found = Finding("records", "Records of the log", len(rows), ("type", "records"), rows, "the most frequent first")
    body = _table(found) if rows else '<p class="none">None: what was audited is a snapshot alone.</p>'
    return f'<section id="records"><h2>{found.title}</h2>{body}</section>'


def _table(found: Finding) -> str:
    columns = [(name, is_of_numbers(row[at] for row in found.rows)) for at, name in enumerate(found.columns)]
    heads = "".join(head(name, numbers=numbers) for name, numbers in columns)
    rows = [
        "".join(cell(name, value, numbers=numbers) for (name, numbers), value in zip(columns, row, strict=True))
        for row in found.rows
    ]
    shown = len(rows)
    which = f"All {shown:,}" if shown == found.total else f"The first {shown:,} of {found.total:,}"
    return "\n".join(
        [
            f'<p class="more">{which}, {escape(found.order)}.</p>',
            f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>',
            *(f"<tr>{row}</tr>" for row in rows),
            "</tbody></table></div>",
        ]
    )
