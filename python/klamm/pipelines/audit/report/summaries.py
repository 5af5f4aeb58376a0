"""Answers aggregated by topic and by broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.metadata.log.moments import iso_text
from klamm.pipelines.audit.findings import Finding
from klamm.pipelines.audit.rows import columns_of_answer

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit


def moving_topics(audit: Audit, limit: int) -> Finding:
    """The topics with the most leader changes."""
    columns = ("topic", "moves", "partitions", "unclean", "last_time")
    grouped: dict[tuple[str | None, str], list[tuple[Any, ...]]] = {}
    names = ("topic", "topic_id", "partition", "is_unclean", "timestamp")
    for topic, topic_id, *rest in columns_of_answer(audit.answer("leadership"), *names):
        grouped.setdefault((topic, topic_id), []).append(tuple(rest))
    rows = [
        (topic, len(of_topic), len({row[0] for row in of_topic}), sum(row[1] for row in of_topic), _latest(of_topic))
        for (topic, _), of_topic in grouped.items()
    ]
    rows.sort(key=lambda row: (-row[1], row[0] or ""))
    return Finding("leadership", "By topic", len(rows), columns, rows[:limit], "those with the most moves first")


def _latest(rows: list[tuple[Any, ...]]) -> str | None:
    return iso_text(max(row[2] for row in rows))


def fenced_brokers(audit: Audit, limit: int) -> Finding:
    """The brokers that were fenced the longest."""
    columns = ("broker", "last_state", "registrations", "times_fenced", "time_fenced_ms", "longest_ms")
    grouped: dict[int, list[tuple[Any, ...]]] = {}
    names = ("broker", "from_offset", "state", "because", "duration_ms")
    for broker, *rest in columns_of_answer(audit.answer("broker_states"), *names):
        grouped.setdefault(broker, []).append(tuple(rest))
    rows: list[tuple[Any, ...]] = []
    for broker, states in grouped.items():
        fenced = [row[3] for row in states if row[1] == "fenced"]
        registered = sum(row[2] == "registered" for row in states)
        rows.append((broker, max(states)[1], registered, len(fenced), sum(fenced), max(fenced, default=0)))
    rows.sort(key=lambda row: (-row[4], row[0]))
    return Finding("broker_states", "By broker", len(rows), columns, rows[:limit], "the longest fenced first")
