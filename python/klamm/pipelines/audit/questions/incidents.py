"""Incidents: leader changes and ISR shrinks with a common cause, in one row per cause."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable
from typing import Any, Final

from klamm.pipelines.audit.questions.answer import INT, LONG, TEXT, TIME, DerivedQuestion, Rows

JOIN_MS: Final = 60_000
"""Changes without a cause in the log belong to one incident if the gap between them is at most this long."""
_AWAY: Final = {
    "fenced": "was fenced",
    "shutting down": "was shut down",
    "unregistered": "was unregistered",
    "registered": "registered again after an unclean shutdown",
}
Row = dict[str, Any]


class _Incident:
    """One cause at one time."""

    def __init__(self, cause: str, broker: int | None, row: Row) -> None:
        self.cause, self.broker = cause, broker
        self.from_offset, self.from_ms = row["offset"], row["timestamp"]
        self.to_ms = self.from_ms
        self.counts = dict.fromkeys(("moved", "lost", "shrinks", "unclean", "returned"), 0)
        self.partitions: set[tuple[str, int]] = set()
        self.topics: dict[str, None] = {}

    def take(self, row: Row, count: str) -> None:
        self.to_ms = max(self.to_ms, row["timestamp"])
        self.counts[count] += 1
        self.partitions.add((row["topic_id"], row["partition"]))
        self.topics[row["topic"] or row["topic_id"]] = None

    def fields(self) -> tuple[Any, ...]:
        counts = self.counts
        changes = counts["moved"] + counts["lost"] + counts["shrinks"]
        return (
            self.cause,
            self.broker,
            self.from_offset,
            self.from_ms,
            self.to_ms,
            changes,
            *counts.values(),
            len(self.partitions),
            len(self.topics),
            next(iter(self.topics)),
        )


class _Causes:
    """Finds the incident to which a change belongs."""

    def __init__(self, broker_states: Iterable[Row]) -> None:
        self.found: dict[object, _Incident] = {}
        self._states: dict[int, list[Row]] = {}
        for row in broker_states:
            self._states.setdefault(row["broker"], []).append(row)
        self._latest: dict[tuple[str, int | None], _Incident] = {}

    def away(self, broker: int, row: Row) -> _Incident | None:
        """The incident of a broker that was not active; its record may be a later one of the same time."""
        states = self._states.get(broker, [])
        at = bisect.bisect_right(states, row["offset"], key=lambda one: one["from_offset"])
        for state in (*(one for one in states[at : at + 1] if one["from_time"] == row["timestamp"]), *states[:at][-1:]):
            how = state["because"] if state["because"] == "registered" else state["state"]
            if state["state"] != "active" and how in _AWAY:
                key = broker, state["from_offset"]
                if key not in self.found:
                    self.found[key] = _Incident(f"broker {broker} {_AWAY[how]}", broker, row)
                return self.found[key]
        return None

    def near(self, cause: str, broker: int | None, row: Row) -> _Incident:
        """The open incident with that cause, or a new one."""
        latest = self._latest.get((cause, broker))
        if latest is None or row["timestamp"] - latest.to_ms > JOIN_MS:
            latest = self._latest[cause, broker] = _Incident(cause, broker, row)
            self.found[cause, broker, row["offset"]] = latest
        return latest


def _rows(leadership: Iterable[Row], isr_changes: Iterable[Row], broker_states: Iterable[Row]) -> Rows:
    """A row for each cause: a broker that was fenced, shut down, unregistered or restarted, or that fell behind while
    it was active; elections of the preferred leader; and other moves, such as those of a reassignment.

    cause, in words; broker (null: no single broker); from_offset, from_time; to_time (of the last change); changes (all
    except returns); leaders_moved, leaders_lost (no leader afterwards), isr_shrinks, unclean_elections, returned
    (leaders that came back, and replicas that entered the ISR again, counted where they were lost); partitions, topics
    (the number of affected ones), topic (one of them). Changes without a causing record belong together up to a gap of
    a minute.
    """
    causes = _Causes(broker_states)
    lost: dict[tuple[str, int], _Incident] = {}
    left: dict[tuple[str, int, int], _Incident] = {}
    for row in heapq.merge(leadership, isr_changes, key=lambda one: int(one["offset"])):
        if "change" in row:
            _take_isr_change(causes, left, row)
        else:
            _take_move(causes, lost, row)
    return (one.fields() for one in causes.found.values())


def _take_isr_change(causes: _Causes, left: dict[tuple[str, int, int], _Incident], row: Row) -> None:
    key = row["topic_id"], row["partition"], row["broker"]
    if row["change"] == "left":
        broker = row["broker"]
        found = causes.away(broker, row) or causes.near(f"broker {broker} fell behind", broker, row)
        found.take(row, "shrinks")
        left[key] = found
    elif row["change"] == "entered" and key in left:
        left.pop(key).take(row, "returned")


def _take_move(causes: _Causes, lost: dict[tuple[str, int], _Incident], row: Row) -> None:
    key = row["topic_id"], row["partition"]
    before = row["from_leader"]
    if before is None:
        found = lost.pop(key, None)
        if found is not None:
            found.take(row, "returned")
    else:
        other = "the preferred replica was elected" if row["is_preferred"] else "another replica was elected"
        other = "no replica could lead" if row["to_leader"] is None else other
        found = causes.away(before, row) or causes.near(other, None, row)
        found.take(row, "lost" if row["to_leader"] is None else "moved")
        if row["to_leader"] is None:
            lost[key] = found
    if row["is_unclean"]:
        found = found or causes.near("another replica was elected", None, row)
        found.take(row, "unclean")


incidents = DerivedQuestion(
    {
        "cause": TEXT,
        "broker": INT,
        "from_offset": LONG,
        "from_time": TIME,
        "to_time": TIME,
        "changes": LONG,
        "leaders_moved": LONG,
        "leaders_lost": LONG,
        "isr_shrinks": LONG,
        "unclean_elections": LONG,
        "returned": LONG,
        "partitions": LONG,
        "topics": LONG,
        "topic": TEXT,
    },
    ("leadership", "isr_changes", "broker_states"),
    _rows,
)
