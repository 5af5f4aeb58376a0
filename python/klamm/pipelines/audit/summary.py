"""The result of an audit in sentences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from klamm.metadata.log.moments import iso_text
from klamm.pipelines.audit.durations import duration
from klamm.pipelines.audit.findings import sort_keys
from klamm.pipelines.audit.rows import columns_of_answer, in_ms

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit

_INCIDENTS: Final = 3
"""The largest number of incidents in a summary."""


def summarize(audit: Audit) -> list[str]:
    """The sentences, the most important of each kind first."""
    sentences = [_log(audit), _quorum(audit), _brokers(audit), _topics(audit)]
    sentences += [
        _partitions(audit, "leaderless", "no leader", "Every partition has a leader"),
        _partitions(audit, "under_replicated", "replicas that are not in sync", "All replicas are in sync"),
    ]
    sentences += [_unclean(audit), *_incidents(audit), _configs(audit)]
    sentences += [f"The log is damaged: {one}." for one in audit.plan.damage]
    return [sentence for sentence in sentences if sentence]


def _log(audit: Audit) -> str:
    plan = audit.plan
    length = duration(plan.end_time_ms - plan.start_time_ms)
    when = f"from {iso_text(plan.start_time_ms)} to {iso_text(plan.end_time_ms)}"
    if plan.start_offset is None:
        return f"This is a snapshot alone, as of {iso_text(plan.end_time_ms)}: it contains no changes."
    return f"The log covers {length}, {when}, in {_many(plan.end_offset - plan.start_offset, 'record')}."


def _quorum(audit: Audit) -> str:
    rows = sorted(columns_of_answer(audit.answer("elections"), "epoch", "leader", "timestamp"))
    if not rows:
        return "The log has no election of the quorum."
    epoch, leader, time_ms = rows[-1]
    since = f"node {leader} has led since {iso_text(time_ms)}, in epoch {epoch}"
    return f"The quorum elected a leader {_times(len(rows))}; {since}."


def _brokers(audit: Audit) -> str:
    rows = columns_of_answer(audit.answer("broker_states"), "broker", "state", "from_time", "to_offset")
    last = {broker: (state, time_ms) for broker, state, time_ms, to in rows if to is None}
    if not last:
        return "The log names no broker."
    away = [(broker, *at) for broker, at in sorted(last.items()) if at[0] != "active"]
    active = len(last) - len(away)
    if not away:
        return f"At the end {'the only broker is' if active == 1 else f'all {active} brokers are'} active."
    are = "is" if active == 1 else "are"
    first = ", ".join(f"broker {broker} is {state} since {iso_text(time_ms)}" for broker, state, time_ms in away[:5])
    more = f", and {len(away) - 5} more are not active" if len(away) > 5 else ""
    return f"At the end {active} of {_many(len(last), 'broker')} {are} active; {first}{more}."


def _topics(audit: Audit) -> str:
    changes = Counter(change for (change,) in columns_of_answer(audit.answer("topic_changes"), "change"))
    if not changes:
        return "No topic was created, grew or was deleted."
    words = {"created": "created", "grown": "given more partitions", "deleted": "deleted"}
    counts = [(changes[kind], verb) for kind, verb in words.items() if changes[kind]]
    parts = [f"{_many(count, 'topic')} {_was(count)} {verb}" for count, verb in counts]
    return f"{_listed(parts)}."


def _partitions(audit: Audit, question: str, what: str, good: str) -> str:
    """The intervals that are open."""
    names = ("topic", "partition", "from_time", "duration_ms", "to_offset")
    rows = list(columns_of_answer(audit.answer(question), *names))
    still = [row for row in rows if row[-1] is None]
    if not rows:
        return f"{good}, all the time."
    if not still:
        topic, number, time_ms, length, _ = max(rows, key=lambda row: row[3])
        longest = f"the longest {topic}-{number}, at {iso_text(time_ms)} for {duration(length)}"
        return f"{good} at the end; {_many(len(rows), 'time')} a partition had {what}, {longest}."
    topic, number, time_ms, length, _ = max(still, key=lambda row: row[3])
    has = "has" if len(still) == 1 else "have"
    return f"{_many(len(still), 'partition')} {has} {what} at the end, {topic}-{number} since {iso_text(time_ms)}."


def _unclean(audit: Audit) -> str:
    rows = list(columns_of_answer(audit.answer("unclean_elections"), "offset", "topic", "partition", "timestamp"))
    if not rows:
        return "No leader was elected uncleanly."
    _, topic, number, time_ms = max(rows)
    count = f"{_many(len(rows), 'leader')} {_was(len(rows))} elected uncleanly"
    return f"{count}, the last of them of {topic}-{number} at {iso_text(time_ms)}: records may be lost."


def _incidents(audit: Audit) -> list[str]:
    first = audit.answer("incidents").sort_by(sort_keys("incidents")).slice(0, _INCIDENTS)
    return [_incident(row) for row in in_ms(first).to_pylist()]


def _incident(row: dict[str, Any]) -> str:
    costs = (
        ("leaders_lost", "partition lost its leader", "partitions lost their leaders"),
        ("leaders_moved", "leader moved", "leaders moved"),
        ("isr_shrinks", "ISR shrank", "ISRs shrank"),
        ("unclean_elections", "leader was elected uncleanly", "leaders were elected uncleanly"),
    )
    parts = [f"{row[name]:,} {one if row[name] == 1 else many}" for name, one, many in costs if row[name]]
    cause = row["cause"][:1].upper() + row["cause"][1:]
    return f"{cause} at {iso_text(row['from_time'])}: {_listed(parts)}."


def _configs(audit: Audit) -> str:
    changes = Counter(change for (change,) in columns_of_answer(audit.answer("config_changes"), "change"))
    count = sum(changes.values()) - changes["deleted"] - changes["repeated"]
    return f"{_many(count, 'config')} {_was(count)} set, changed or removed." if count else "No config was changed."


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
