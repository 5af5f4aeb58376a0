"""Leader changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.pipelines.audit.partition_history import changes
from klamm.pipelines.audit.questions.answer import BOOL, INT, LONG, TEXT, TIME, RecordQuestion, Rows
from klamm.pipelines.audit.questions.unclean import is_unclean

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


def _rows(facts: Facts) -> Rows:
    """Every record by which a partition has another leader than before, or none, or one again.

    topic, topic_id, partition, offset, epoch, timestamp; from_leader and to_leader (null: none); leader_epoch_before
    and leader_epoch; kind: `moved` (from one to another), `lost` (to none) or `regained` (from none); is_preferred
    (the new one is the first replica); is_unclean (see `unclean_elections`). A partition's first leader moved nowhere,
    a leader epoch that goes up with the same leader is no move, and neither is a deletion.
    """
    for change, before in changes(facts):
        after = change.after
        if after.leader == before.leader:
            continue
        yield (
            change.topic,
            change.topic_id,
            change.partition,
            change.offset,
            change.epoch,
            change.time_ms,
            before.leader,
            after.leader,
            before.leader_epoch,
            after.leader_epoch,
            "lost" if after.leader is None else "regained" if before.leader is None else "moved",
            after.leader is not None and after.leader == after.replicas[0],
            is_unclean(facts, change, before),
        )


leadership = RecordQuestion(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INT,
        "offset": LONG,
        "epoch": INT,
        "timestamp": TIME,
        "from_leader": INT,
        "to_leader": INT,
        "leader_epoch_before": INT,
        "leader_epoch": INT,
        "kind": TEXT,
        "is_preferred": BOOL,
        "is_unclean": BOOL,
    },
    _rows,
)
