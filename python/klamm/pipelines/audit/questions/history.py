"""Every state of every partition as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from klamm.pipelines.audit.partition_history import State, history
from klamm.pipelines.audit.questions.answer import IDS, INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts

_STATE: Final = {
    "leader": INT,
    "leader_epoch": INT,
    "partition_epoch": INT,
    "replicas": IDS,
    "isr": IDS,
    "adding_replicas": IDS,
    "removing_replicas": IDS,
    "elr": IDS,
    "last_known_elr": IDS,
    "leader_recovery_state": INT,
    "directories": pa.list_(TEXT),
}
_NO_STATE: Final = (None,) * len(State._fields)


def _rows(facts: Facts) -> Rows:
    """A row for each record that says something of a partition.

    topic (null: its name was cleaned), topic_id, partition; event (see `Change`); offset, batch, epoch, timestamp
    of the record; the state after it: leader (null: none), leader_epoch, partition_epoch, replicas, isr,
    adding_replicas, removing_replicas, elr, last_known_elr, leader_recovery_state (1: recovering from an unclean
    election), directories; and the state before it, under the same names with `_before`, null where there was none.
    """
    for changes in history(facts).values():
        for change in changes:
            *place, after, before = change
            yield (*place, *after, *(before or _NO_STATE))


partition_history = RecordQuestion(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INT,
        "event": TEXT,
        "offset": LONG,
        "batch": LONG,
        "epoch": INT,
        "timestamp": TIME,
        **_STATE,
        **{f"{name}_before": kind for name, kind in _STATE.items()},
    },
    _rows,
)
