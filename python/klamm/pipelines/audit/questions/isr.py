"""Brokers that left and entered ISRs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from klamm.pipelines.audit.partition_history import changes
from klamm.pipelines.audit.questions.answer import INT, LONG, TEXT, TIME, DerivedQuestion, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


def _changes(facts: Facts) -> Rows:
    """A row for each broker that a record took out of a partition's ISR or put into it.

    topic, topic_id, partition, offset, epoch, timestamp, broker; change: `left` (it stays a replica: an ISR shrinks),
    `entered` (an ISR expands), `removed` (it left the replicas as well: a reassignment, not a fault). Creation,
    deletion and the initial state in a snapshot are no changes. An unclean election changes the ISR, too, and is
    counted.
    """
    for change, before in changes(facts):
        if change.after.isr == before.isr:
            continue
        place = change.topic, change.topic_id, change.partition, change.offset, change.epoch, change.time_ms
        for broker in dict.fromkeys(before.isr):
            if broker not in change.after.isr:
                yield (*place, broker, "left" if broker in change.after.replicas else "removed")
        for broker in dict.fromkeys(change.after.isr):
            if broker not in before.isr:
                yield (*place, broker, "entered")


def _churn(isr_changes: Iterable[dict[str, Any]]) -> Rows:
    """A row for each broker: how often ISRs lost and gained it.

    broker; shrinks (it left an ISR and stayed a replica), expands (it entered one), removed (with its replica);
    partitions (how many are concerned), first_time and last_time.
    """
    by_broker: dict[int, _Churn] = {}
    for row in isr_changes:
        by_broker.setdefault(row["broker"], _Churn()).take(row)
    for broker, churn in by_broker.items():
        counts = (churn.counts[change] for change in ("left", "entered", "removed"))
        yield (broker, *counts, len(churn.partitions), min(churn.times_ms), max(churn.times_ms))


class _Churn:
    """What happened to one broker."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.partitions: set[tuple[str, int]] = set()
        self.times_ms: tuple[int, ...] = ()
        """The first and the last."""

    def take(self, row: dict[str, Any]) -> None:
        self.counts[row["change"]] += 1
        self.partitions.add((row["topic_id"], row["partition"]))
        times_ms = (*self.times_ms, row["timestamp"])
        self.times_ms = min(times_ms), max(times_ms)


isr_changes = RecordQuestion(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INT,
        "offset": LONG,
        "epoch": INT,
        "timestamp": TIME,
        "broker": INT,
        "change": TEXT,
    },
    _changes,
)
isr_churn = DerivedQuestion(
    {
        "broker": INT,
        "shrinks": LONG,
        "expands": LONG,
        "removed": LONG,
        "partitions": LONG,
        "first_time": TIME,
        "last_time": TIME,
    },
    ("isr_changes",),
    _churn,
)
