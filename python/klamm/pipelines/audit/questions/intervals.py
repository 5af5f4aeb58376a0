"""How long partitions were under-replicated or without a leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from klamm.pipelines.audit.partition_history import Change, State, history
from klamm.pipelines.audit.questions.answer import BOOL, IDS, INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


class _Stretch(NamedTuple):
    """Consecutive changes after which a condition holds, and the change that ends it."""

    changes: list[Change]
    following: Change | None

    def fields(self, end_time_ms: int, ended: str) -> tuple[object, ...]:
        """The common columns of an interval; `ended` is the name of its end, unless the topic was deleted."""
        first, to = self.changes[0], self.following
        place = first.topic, first.topic_id, first.partition, first.offset, first.time_ms
        how = None if to is None else "deleted" if to.event == "deleted" else ended
        to_ms = end_time_ms if to is None else to.time_ms
        is_from_snapshot = any(one.event == "snapshot" for one in self.changes)
        return (*place, to and to.offset, to and to.time_ms, how, to_ms - first.time_ms, is_from_snapshot)


_COLUMNS = {
    "topic": TEXT,
    "topic_id": TEXT,
    "partition": INT,
    "from_offset": LONG,
    "from_time": TIME,
    "to_offset": LONG,
    "to_time": TIME,
    "ended": TEXT,
    "duration_ms": LONG,
    "is_from_snapshot": BOOL,
}


def _under_replicated(facts: Facts) -> Rows:
    """Every interval in which a partition's ISR was smaller than its replicas.

    Replicas that a reassignment adds do not count before it is complete, as in Apache Kafka's metric
    UnderReplicatedPartitions. An interval begins with the record that makes the ISR smaller and ends with the record
    that completes it, or with the topic's deletion; other changes of the ISR do not end it.

    topic, topic_id, partition; from_offset, from_time; to_offset, to_time (null: open); ended: `in sync`, `deleted` or
    null; duration_ms; is_from_snapshot; replicas (how many count, at most); isr_min (the fewest in sync); missing
    (brokers that were out of sync at any time).
    """
    for stretch in _stretches(facts, lambda state: len(state.isr) < len(_counted(state))):
        states = [change.after for change in stretch.changes]
        yield (
            *stretch.fields(facts.extent.end_time_ms, "in sync"),
            max(len(_counted(state)) for state in states),
            min(len(state.isr) for state in states),
            sorted({broker for state in states for broker in _counted(state) - set(state.isr)}),
        )


def _counted(state: State) -> set[int]:
    return set(state.replicas) - set(state.adding_replicas)


def _leaderless(facts: Facts) -> Rows:
    """Every interval in which a partition had no leader, so that it could be neither written nor read.

    topic, topic_id, partition; from_offset, from_time; to_offset, to_time (null: open); ended: `elected`, `deleted` or
    null; duration_ms; is_from_snapshot; isr (at the end of the interval: the brokers that could lead).
    """
    for stretch in _stretches(facts, lambda state: state.leader is None):
        yield (*stretch.fields(facts.extent.end_time_ms, "elected"), stretch.changes[-1].after.isr)


def _stretches(facts: Facts, is_so: Callable[[State], bool]) -> Iterator[_Stretch]:
    for of_partition in history(facts).values():
        begun: list[Change] = []
        for change in of_partition:
            if change.event != "deleted" and is_so(change.after):
                begun.append(change)
            elif begun:
                yield _Stretch(begun, change)
                begun = []
        if begun:
            yield _Stretch(begun, None)


under_replicated = RecordQuestion({**_COLUMNS, "replicas": INT, "isr_min": INT, "missing": IDS}, _under_replicated)
leaderless = RecordQuestion({**_COLUMNS, "isr": IDS}, _leaderless)
