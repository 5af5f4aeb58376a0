"""The numbers of a report: counted by Spark, in so many stretches of time that they fit a plot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, Finding, find, log_fields
from klamm.pipelines.audit.report.period import STRETCHES, Period
from klamm.pipelines.audit.report.summaries import fenced_brokers, moving_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """Of the brokers that there are."""
    newest: int
    """How many stretches of a broker are drawn at most."""
    is_cut: bool
    """Whether a broker that is drawn has more."""


class Churn(NamedTuple):
    """Changes of ISRs by broker."""

    brokers: list[tuple[int, int, int]]
    """Broker, shrinks, expands: those that are drawn, by broker."""
    total: int
    """Of the brokers that ISRs lost or gained."""


class Figures(NamedTuple):
    """All that the page shows."""

    log: dict[str, Any]
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
    """Of the quorum: epoch, leader, and the times of its first and its last record."""


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
        period,
        findings,
        _counts(audit),
        _moves(audit, period),
        moving_topics(audit, rows),
        fenced_brokers(audit, rows),
        _partitions(audit.under_replicated(), period),
        _partitions(audit.leaderless(), period),
        _brokers(audit),
        _churn(audit),
        _leaders(audit, period),
    )


def _counts(audit: Audit) -> dict[str, int]:
    from pyspark.sql import functions as f

    rows = audit.counts().orderBy(f.desc("records"), "type").collect()
    return {row["type"]: row["records"] for row in rows}


def _moves(audit: Audit, period: Period) -> dict[str, list[int]]:
    from pyspark.sql import functions as f

    kind = f.when(f.col("is_unclean"), "unclean").otherwise(f.col("kind")).alias("kind")
    found = audit.leadership().groupBy(kind, period.stretch("timestamp").alias("stretch")).count().collect()
    moves = {name: [0] * STRETCHES for name in ("moved", "lost", "regained", "unclean")}
    for row in found:
        if row["stretch"] is not None:
            moves[row["kind"]][row["stretch"]] += row["count"]
    return moves


def _partitions(answer: DataFrame, period: Period) -> list[int]:
    """In how many partitions an interval of the answer was open at some time of each stretch of the period."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_partition = Window.partitionBy("topic_id", "partition").orderBy("from_offset")
    spans = answer.select(
        "topic_id",
        "partition",
        "from_offset",
        period.stretch("from_time").alias("first"),
        f.when(f.col("to_offset").isNull(), STRETCHES - 1).otherwise(period.stretch("to_time")).alias("last"),
    )
    # Clocks of two leaders may disagree: an interval ends where it begins at least.
    spans = spans.withColumn("last", f.greatest("first", "last"))
    before = f.max("last").over(of_partition.rowsBetween(Window.unboundedPreceding, -1))
    # A stretch that an earlier interval of the partition is in counts once.
    spans = spans.withColumn("first", f.greatest("first", f.coalesce(before + 1, f.lit(0)))).where("first <= last")
    changes = [0] * (STRETCHES + 1)
    for row in spans.groupBy("first", "last").count().collect():
        changes[row["first"]] += row["count"]
        changes[row["last"] + 1] -= row["count"]
    return list(itertools.accumulate(changes[:-1]))


def _brokers(audit: Audit) -> BrokerStates:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    answer = audit.broker_states()
    counts = answer.groupBy("broker").count()
    most = sorted(counts.orderBy(f.desc("count"), "broker").limit(BROKERS_MAX).collect())
    newest = f.row_number().over(Window.partitionBy("broker").orderBy(f.desc("from_offset")))
    rows = (
        answer.where(f.col("broker").isin([row["broker"] for row in most]))
        .withColumn("newest", newest)
        .where(f.col("newest") <= STATES_MAX)
        .select(
            "broker",
            "state",
            f.unix_millis("from_time").alias("from_ms"),
            f.unix_millis("to_time").alias("to_ms"),
            "from_offset",
        )
    )
    states = [
        (row["broker"], row["state"], row["from_ms"] or 0, row["to_ms"])
        for row in rows.orderBy("broker", "from_offset").collect()
    ]
    return BrokerStates(states, counts.count(), STATES_MAX, any(row["count"] > STATES_MAX for row in most))


def _churn(audit: Audit) -> Churn:
    from pyspark.sql import functions as f

    answer = audit.isr_churn()
    rows = answer.orderBy(f.desc(f.col("shrinks") + f.col("expands")), "broker").limit(BROKERS_MAX).collect()
    return Churn(sorted((row["broker"], row["shrinks"], row["expands"]) for row in rows), answer.count())


def _leaders(audit: Audit, period: Period) -> list[tuple[int, int, int, int]]:
    from pyspark.sql import functions as f

    times = [f.unix_millis(name).alias(name) for name in ("timestamp", "last_time")]
    found = audit.elections().select("epoch", "leader", *times).orderBy("epoch").tail(LEADERS_MAX)
    # What an election tells of the last record before it is the end of the leader before.
    ends = [row["last_time"] for row in found[1:]] + [period.end_ms]
    return [
        (row["epoch"], row["leader"], row["timestamp"] or 0, end or 0) for row, end in zip(found, ends, strict=True)
    ]
