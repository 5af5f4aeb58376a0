"""The numbers of a report: counted by Spark, in so many stretches of time that they fit a plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, Finding, find, log_fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from klamm.pipelines.audit.audit import Audit

STRETCHES: Final = 80
BROKERS_MAX: Final = 40
STATES_MAX: Final = 2000
"""Stretches of brokers' lives that are drawn."""


class Period(NamedTuple):
    """The time that a report is about, in equal stretches."""

    start_ms: int
    end_ms: int

    @property
    def width_ms(self) -> int:
        """Of one stretch."""
        return max(1, -(-(self.end_ms - self.start_ms + 1) // STRETCHES))

    def stretch(self, name: str) -> Column:
        """Which stretch a time is in."""
        from pyspark.sql import functions as f

        number = f.floor((f.unix_millis(name) - self.start_ms) / self.width_ms)
        return f.least(f.greatest(number, f.lit(0)), f.lit(STRETCHES - 1)).cast("int")


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
    under_replicated: list[int]
    """Partitions that were under-replicated at some time of each stretch."""
    brokers: list[tuple[int, str, int, int | None]]
    """Broker, state, and from when until when, in ms."""
    churn: list[tuple[int, int, int]]
    """Broker, shrinks, expands."""
    leaders: list[tuple[int, int, int, int]]
    """Of the quorum: epoch, leader, and from when until when."""


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
        _moving_topics(audit, rows),
        _under_replicated(audit, period),
        _brokers(audit),
        _churn(audit),
        _leaders(audit, period),
    )


def _counts(audit: Audit) -> dict[str, int]:
    rows = audit.overview().where("snapshot is null").groupBy("type").count().collect()
    return {row["type"]: row["count"] for row in sorted(rows, key=lambda row: (-row["count"], row["type"]))}


def _moves(audit: Audit, period: Period) -> dict[str, list[int]]:
    from pyspark.sql import functions as f

    kind = f.when(f.col("is_unclean"), "unclean").otherwise(f.col("kind")).alias("kind")
    found = audit.leadership().groupBy(kind, period.stretch("timestamp").alias("stretch")).count().collect()
    moves = {name: [0] * STRETCHES for name in ("moved", "lost", "regained", "unclean")}
    for row in found:
        if row["stretch"] is not None:
            moves[row["kind"]][row["stretch"]] += row["count"]
    return moves


def _moving_topics(audit: Audit, limit: int) -> Finding:
    from pyspark.sql import functions as f

    columns = ("topic", "moves", "partitions", "unclean", "last_time")
    by_topic = audit.leadership().groupBy("topic", "topic_id")
    grouped = by_topic.agg(
        f.count("*").alias("moves"),
        f.count_distinct("partition").alias("partitions"),
        f.count_if("is_unclean").alias("unclean"),
        f.date_format(
            f.to_utc_timestamp(f.max("timestamp"), f.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
        ).alias("last_time"),
    )
    rows = grouped.orderBy(f.desc("moves"), "topic").limit(limit).select(*columns).collect()
    return Finding("leadership", "Topics by leaders that moved", grouped.count(), columns, [tuple(row) for row in rows])


def _under_replicated(audit: Audit, period: Period) -> list[int]:
    """How many stretches there are in each: begun by then, and not ended before."""
    from pyspark.sql import functions as f

    answer = audit.under_replicated()
    begun = _in_stretches(answer, period.stretch("from_time"))
    ended = _in_stretches(answer.where(f.col("to_time").isNotNull()), period.stretch("to_time"))
    found, now = [], 0
    for more, fewer in zip(begun, ended, strict=True):
        now += more
        found.append(now)
        now -= fewer
    return found


def _in_stretches(rows: DataFrame, stretch: Column) -> list[int]:
    counted = [0] * STRETCHES
    for row in rows.groupBy(stretch.alias("stretch")).count().collect():
        counted[row["stretch"] or 0] += row["count"]
    return counted


def _brokers(audit: Audit) -> list[tuple[int, str, int, int | None]]:
    from pyspark.sql import functions as f

    rows = audit.broker_states().select(
        "broker",
        "state",
        f.unix_millis("from_time").alias("from_ms"),
        f.unix_millis("to_time").alias("to_ms"),
        "from_offset",
    )
    found = rows.orderBy("broker", "from_offset").limit(STATES_MAX).collect()
    return [(row["broker"], row["state"], row["from_ms"] or 0, row["to_ms"]) for row in found]


def _churn(audit: Audit) -> list[tuple[int, int, int]]:
    rows = audit.isr_churn().orderBy("broker").limit(BROKERS_MAX).collect()
    return [(row["broker"], row["shrinks"], row["expands"]) for row in rows]


def _leaders(audit: Audit, period: Period) -> list[tuple[int, int, int, int]]:
    from pyspark.sql import functions as f

    rows = audit.elections().select("epoch", "leader", f.unix_millis("timestamp").alias("from_ms")).orderBy("epoch")
    found = rows.tail(STATES_MAX)
    ends = [row["from_ms"] for row in found[1:]] + [period.end_ms]
    return [(row["epoch"], row["leader"], row["from_ms"] or 0, end or 0) for row, end in zip(found, ends, strict=True)]
