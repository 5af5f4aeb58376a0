"""The answers of questions, shortened: the worst or newest rows of each, and the total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from klamm.metadata.log.moments import iso_text
from klamm.pipelines.audit.rows import in_ms

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit


class Subject(NamedTuple):
    """How an answer is shown."""

    title: str
    order: str
    """The order: columns, with ` desc` for descending ones."""
    order_text: str
    columns: tuple[str, ...]


class Finding(NamedTuple):
    """The first rows of an answer."""

    question: str
    title: str
    total: int
    """The number of all rows."""
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    order: str
    """The order, in words."""


SUBJECTS: Final = {
    "incidents": Subject(
        "What went wrong, by cause and time",
        "unclean_elections desc, leaders_lost desc, changes desc, from_offset",
        "those that cost most first",
        (
            "cause",
            "from_time",
            "to_time",
            "leaders_moved",
            "leaders_lost",
            "isr_shrinks",
            "unclean_elections",
            "returned",
            "partitions",
            "topic",
        ),
    ),
    "elections": Subject(
        "Elections of the quorum",
        "epoch desc",
        "the newest first",
        ("epoch", "leader", "leader_before", "offset", "timestamp", "length_ms", "epochs_between"),
    ),
    "broker_states": Subject(
        "Brokers: active, fenced, away",
        "from_offset desc, broker",
        "the newest first",
        ("broker", "state", "because", "from_offset", "from_time", "to_time", "duration_ms"),
    ),
    "leadership": Subject(
        "Leaders that moved",
        "offset desc, topic, partition",
        "the newest first",
        ("topic", "partition", "offset", "timestamp", "from_leader", "to_leader", "leader_epoch", "kind", "is_unclean"),
    ),
    "unclean_elections": Subject(
        "Unclean elections",
        "offset desc, topic, partition",
        "the newest first",
        ("topic", "partition", "offset", "timestamp", "from_leader", "to_leader", "isr_before", "recovered_time"),
    ),
    "under_replicated": Subject(
        "Under-replicated partitions",
        "duration_ms desc, topic, partition, from_offset",
        "the longest first",
        ("topic", "partition", "from_time", "to_time", "ended", "duration_ms", "replicas", "isr_min", "missing"),
    ),
    "leaderless": Subject(
        "Partitions without a leader",
        "duration_ms desc, topic, partition, from_offset",
        "the longest first",
        ("topic", "partition", "from_time", "to_time", "ended", "duration_ms", "isr"),
    ),
    "isr_churn": Subject(
        "ISR churn by broker",
        "shrinks desc, broker",
        "the brokers that ISRs lost most first",
        ("broker", "shrinks", "expands", "removed", "partitions", "first_time", "last_time"),
    ),
    "isr_changes": Subject(
        "Changes of ISRs",
        "offset desc, topic, partition, broker",
        "the newest first",
        ("topic", "partition", "offset", "timestamp", "broker", "change"),
    ),
    "topic_changes": Subject(
        "Topics that were created, grew and were deleted",
        "offset desc, topic",
        "the newest first",
        ("topic", "offset", "timestamp", "change", "partitions_before", "partitions"),
    ),
    "config_changes": Subject(
        "Configs that changed",
        "offset desc, resource_name, name",
        "the newest first",
        ("resource_type", "resource_name", "name", "offset", "timestamp", "before", "after", "change"),
    ),
}
OVERVIEW: Final = tuple(name for name in SUBJECTS if name != "isr_changes")
"""The questions that are shown by default."""


def find(audit: Audit, question: str, limit: int, *, every_column: bool = False) -> Finding:
    """The first rows of an answer, with the columns for people or all columns."""
    answer = audit.answer(question)
    subject = SUBJECTS[question]
    columns = tuple(answer.schema.names) if every_column else subject.columns
    first = answer.sort_by(sort_keys(question)).slice(0, limit).select(list(columns))
    at = [number for number, field in enumerate(first.schema) if pa.types.is_timestamp(field.type)]
    values = in_ms(first).to_pydict()
    rows = [_with_times(row, at) for row in zip(*values.values(), strict=True)]
    return Finding(question, subject.title, answer.num_rows, columns, rows, subject.order_text)


def sort_keys(question: str) -> list[tuple[str, str]]:
    """The order in which an answer is shown, for an Arrow table."""
    return [_sort_key(part) for part in SUBJECTS[question].order.split(", ")]


def _sort_key(part: str) -> tuple[str, str]:
    name, _, direction = part.partition(" ")
    return name, "descending" if direction else "ascending"


def _with_times(row: tuple[Any, ...], at: list[int]) -> tuple[Any, ...]:
    """ISO 8601, UTC."""
    return tuple(iso_text(value) if number in at and value is not None else value for number, value in enumerate(row))


def log_fields(audit: Audit) -> dict[str, Any]:
    """The audited log, as JSON values."""
    plan = audit.plan
    return {
        "origin": audit.origin,
        "start_offset": plan.start_offset,
        "end_offset": plan.end_offset,
        "start_time": iso_text(plan.start_time_ms),
        "end_time": iso_text(plan.end_time_ms),
        "base_snapshot": plan.base.name if plan.base else None,
        "snapshots": [parts[0].snapshot.name for parts in plan.snapshots if parts[0].snapshot],
        "withheld_offsets": [list(one) for one in plan.withheld],
        "damage": list(plan.damage),
    }
