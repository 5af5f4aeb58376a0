"""Config changes, with the values before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.metadata.rendering.fields import HIDDEN
from klamm.pipelines.audit.questions.answer import INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts, Row

_TOPIC: Final = 2
_TYPES: Final = {_TOPIC: "topic", 4: "broker", 16: "client metrics", 32: "group"}


def _rows(facts: Facts) -> Rows:
    """A row for each record that sets or removes a value, and for each value that went with its topic.

    resource_type (`topic`, `broker`, `client metrics`, `group`, else its number), resource_name (empty: the default of
    all brokers), name; offset, epoch, timestamp; before and after (null: not set, so that a default holds); change:
    `set` (there was none), `changed`, `repeated` (to the same), `removed`, `deleted` (with its topic), and `replaced`
    for a secret that was set before, because the log does not show whether it differs. Secrets and the values of
    unknown keys are "(hidden)". The content of the initial snapshot appears as `before`, and has no rows of its own.
    """
    names = {row["topic_id"]: row["name"] for row in facts.rows("TopicRecord")}
    known: dict[tuple[int, str], dict[str, str]] = {}
    records = [*facts.rows("ConfigRecord"), *facts.rows("RemoveTopicRecord")]
    for row in sorted(records, key=lambda one: one["offset"]):
        if "resource_type" not in row:
            topic = names.get(row["topic_id"])
            for name, before in known.pop((_TOPIC, topic or ""), {}).items():
                yield _row(row, (_TOPIC, topic or "", name), before, None, "deleted")
            continue
        of_resource = known.setdefault((row["resource_type"], row["resource_name"]), {})
        name, after = row["name"], row["value"]
        before_or_none = of_resource.get(name)
        if row["snapshot"] is None:
            key = row["resource_type"], row["resource_name"], name
            yield _row(row, key, before_or_none, after, _change(before_or_none, after))
        if after is None:
            of_resource.pop(name, None)
        else:
            of_resource[name] = after


def _change(before: str | None, after: str | None) -> str:
    if after is None:
        return "removed"
    if before is None:
        return "set"
    if before == after == HIDDEN:
        return "replaced"
    return "repeated" if before == after else "changed"


def _row(row: Row, key: tuple[int, str, str], before: str | None, after: str | None, change: str) -> tuple[object, ...]:
    kind, resource, name = key
    place = row["offset"], row["epoch"], row["time_ms"]
    return (_TYPES.get(kind, str(kind)), resource, name, *place, before, after, change)


config_changes = RecordQuestion(
    {
        "resource_type": TEXT,
        "resource_name": TEXT,
        "name": TEXT,
        "offset": LONG,
        "epoch": INT,
        "timestamp": TIME,
        "before": TEXT,
        "after": TEXT,
        "change": TEXT,
    },
    _rows,
    is_of_topics=False,
)
