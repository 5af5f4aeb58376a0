"""The numbers of a report, in as many time intervals as fit a plot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, Finding, find, log_fields
from klamm.pipelines.audit.report.period import STRETCHES, Period
from klamm.pipelines.audit.report.summaries import fenced_brokers, moving_topics
from klamm.pipelines.audit.rows import columns_of_answer
from klamm.pipelines.audit.summary import summarize

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.pipelines.audit.audit import Audit

BROKERS_MAX: Final = 40
"""Brokers that are drawn: those with the most to show."""
STATES_MAX: Final = 100
"""Stretches of each broker's life that are drawn."""
LEADERS_MAX: Final = 2000
"""Epochs of the quorum that are drawn, the newest."""


class BrokerStates(NamedTuple):
    """Stretches of brokers' lives."""

    states: list[tuple[int, str, int, int | None]]
    """Broker, state, and from when until when, in ms: those that are drawn, by broker."""
    total: int
    """The number of brokers."""
    newest: int
    """How many stretches of a broker are drawn at most."""
    is_cut: bool
    """Whether a broker that is drawn has more."""


class Churn(NamedTuple):
    """Changes of ISRs by broker."""

    brokers: list[tuple[int, int, int]]
    """Broker, shrinks, expands: those that are drawn, by broker."""
    total: int
    """The number of brokers that left or joined ISRs."""


class Figures(NamedTuple):
    """All that the page shows."""

    log: dict[str, Any]
    summary: list[str]
    """In sentences."""
    period: Period
    findings: dict[str, Finding]
    counts: dict[str, int]
    """Records by type."""
    moves: dict[str, list[int]]
    """Leaders that moved, by kind, in each stretch."""
    moving_topics: Finding
    fenced_brokers: Finding
    under_replicated: list[int]
    """Partitions that were under-replicated at some time of each stretch."""
    leaderless: list[int]
    """The same of those without a leader."""
    brokers: BrokerStates
    churn: Churn
    leaders: list[tuple[int, int, int, int]]
    """Epoch, leader, and the times of its first and its last record, for each epoch of the quorum."""


def gather(audit: Audit, rows: int, on_step: Callable[[str], None]) -> Figures:
    """Ask all that the page shows."""
    period = Period(max(audit.plan.start_time_ms, 0), max(audit.plan.end_time_ms, 0))
    findings = {}
    for question in OVERVIEW:
        on_step(SUBJECTS[question].title)
        findings[question] = find(audit, question, rows)
    on_step("The plots")
    return Figures(
        log_fields(audit),
        summarize(audit),
        period,
        findings,
        audit.counts(),
        _moves(audit, period),
        moving_topics(audit, rows),
        fenced_brokers(audit, rows),
        _partitions(audit.answer("under_replicated"), period),
        _partitions(audit.answer("leaderless"), period),
        _brokers(audit),
        _churn(audit),
        _leaders(audit, period),
    )


def _moves(audit: Audit, period: Period) -> dict[str, list[int]]:
    moves = {name: [0] * STRETCHES for name in ("moved", "lost", "regained", "unclean")}
    names = ("kind", "is_unclean", "timestamp")
    for kind, is_unclean, time_ms in columns_of_answer(audit.answer("leadership"), *names):
        moves["unclean" if is_unclean else kind][period.stretch(time_ms)] += 1
    return moves


def _partitions(answer: pa.Table, period: Period) -> list[int]:
    """In how many partitions an interval of the answer was open at some time of each stretch of the period."""
    changes = [0] * (STRETCHES + 1)
    passed: dict[tuple[str, int], int] = {}
    """The last stretch of each partition that an earlier interval is in: it counts once."""
    names = ("topic_id", "partition", "from_offset", "from_time", "to_time")
    for topic_id, number, _, from_ms, to_ms in sorted(columns_of_answer(answer, *names), key=lambda row: row[2]):
        first = max(period.stretch(from_ms), passed.get((topic_id, number), -1) + 1)
        # Clocks of two leaders may disagree: an interval ends where it begins at least.
        last = max(period.stretch(from_ms), STRETCHES - 1 if to_ms is None else period.stretch(to_ms))
        if first <= last:
            changes[first] += 1
            changes[last + 1] -= 1
            passed[topic_id, number] = last
    return list(itertools.accumulate(changes[:-1]))


def _brokers(audit: Audit) -> BrokerStates:
    grouped: dict[int, list[tuple[Any, ...]]] = {}
    names = ("broker", "from_offset", "state", "from_time", "to_time")
    for broker, *rest in columns_of_answer(audit.answer("broker_states"), *names):
        grouped.setdefault(broker, []).append(tuple(rest))
    most = sorted(sorted(grouped, key=lambda broker: (-len(grouped[broker]), broker))[:BROKERS_MAX])
    states = [
        (broker, state, from_ms, to_ms)
        for broker in most
        for _, state, from_ms, to_ms in sorted(grouped[broker], key=lambda row: row[0])[-STATES_MAX:]
    ]
    is_cut = any(len(grouped[broker]) > STATES_MAX for broker in most)
    return BrokerStates(states, len(grouped), STATES_MAX, is_cut)


def _churn(audit: Audit) -> Churn:
    rows = list(columns_of_answer(audit.answer("isr_churn"), "broker", "shrinks", "expands"))
    most = sorted(rows, key=lambda row: (-row[1] - row[2], row[0]))[:BROKERS_MAX]
    return Churn([(broker, shrinks, expands) for broker, shrinks, expands in sorted(most)], len(rows))


def _leaders(audit: Audit, period: Period) -> list[tuple[int, int, int, int]]:
    names = ("epoch", "leader", "timestamp", "last_time")
    found = sorted(columns_of_answer(audit.answer("elections"), *names), key=lambda row: row[0])[-LEADERS_MAX:]
    # The last record before an election is the end of the former leader.
    ends = [row[3] for row in found[1:]] + [period.end_ms]
    return [
        (epoch, leader, time_ms or 0, end or 0) for (epoch, leader, time_ms, _), end in zip(found, ends, strict=True)
    ]
