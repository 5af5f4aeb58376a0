"""The life of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.pipelines.audit.questions.answer import INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


def _rows(facts: Facts) -> Rows:
    """A row for each time that a topic was created, got more partitions, or was deleted.

    topic (null: its name was cleaned), topic_id, offset, epoch, timestamp; change: `created`, `grown` or `deleted`;
    partitions_before and partitions, as it was before and after. What a snapshot begins with is no row. Partitions that
    are written at another time than their topic's record make it grow.
    """
    names = {row["topic_id"]: row for row in facts.rows("TopicRecord")}
    counts: dict[str, int] = {}
    records = [(row["offset"], row, False) for row in facts.rows("PartitionRecord")]
    records += [(row["offset"], row, True) for row in facts.rows("RemoveTopicRecord")]
    added: dict[tuple[str, int], list[object]] = {}
    deleted: list[list[object]] = []
    for _, row, is_end in sorted(records, key=lambda one: one[0]):
        topic_id = row["topic_id"]
        topic = names.get(topic_id)
        name = topic and topic["name"]
        place = row["offset"], row["epoch"], row["time_ms"]
        if is_end:
            if facts.share.has(topic_id):
                before = counts.pop(topic_id, 0)
                deleted.append([name, topic_id, *place, "deleted", before, 0])
            continue
        before = counts.get(topic_id, 0)
        counts[topic_id] = before + 1
        if row["snapshot"] is not None:
            continue
        # Records of one call are in batches with the same time.
        found = added.setdefault(
            (topic_id, row["time_ms"]), [name, topic_id, *place, "grown" if before else "created", before, 0]
        )
        found[-1] = counts[topic_id]
    return (tuple(row) for row in (*added.values(), *deleted))


topic_changes = RecordQuestion(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "offset": LONG,
        "epoch": INT,
        "timestamp": TIME,
        "change": TEXT,
        "partitions_before": INT,
        "partitions": INT,
    },
    _rows,
)
