"""The elections of the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.pipelines.audit.questions.answer import IDS, INT, LONG, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


def _rows(facts: Facts) -> Rows:
    """Every leader of the quorum that the log knows: the first record of a leader is its LeaderChangeMessage.

    epoch, leader, voters, granting_voters (who voted for it), offset, timestamp (when it began to lead);
    leader_before (null: the log does not have it); epochs_between: epochs that are skipped, of elections that nobody
    won, or whose leader's records were cut or never reached this log; last_offset and last_time: of the last record of
    an earlier epoch; length_ms: from that to the leader's first record, null where nothing is before it.

    What the log tells: for so long nothing was written, by any leader. What it cannot tell: when the old leader died or
    resigned, and when who campaigned. A leader that is idle writes a NoOpRecord every
    metadata.max.idle.interval.ms (500), so the length is at most that much more than the time without a leader; one
    that is alone in its quorum writes none, and the length is also the time in which nothing changed before. The
    two times are of two machines: where their clocks differ, so does the length, even below zero. Records of the
    log's end may not be committed yet.
    """
    epochs = facts.epochs()
    earlier = dict(zip([one.epoch for one in epochs[1:]], epochs, strict=False))
    leader_before = None
    for row in sorted(facts.leader_changes(), key=lambda one: one["epoch"]):
        before = earlier.get(row["epoch"])
        yield (
            row["epoch"],
            row["leader_id"],
            row["voters"],
            row["granting_voters"],
            row["offset"],
            row["time_ms"],
            leader_before,
            before and row["epoch"] - before.epoch - 1,
            before and before.last_offset,
            before and before.last_time_ms,
            before and row["time_ms"] - before.last_time_ms,
        )
        leader_before = row["leader_id"]


elections = RecordQuestion(
    {
        "epoch": INT,
        "leader": INT,
        "voters": IDS,
        "granting_voters": IDS,
        "offset": LONG,
        "timestamp": TIME,
        "leader_before": INT,
        "epochs_between": INT,
        "last_offset": LONG,
        "last_time": TIME,
        "length_ms": LONG,
    },
    _rows,
    is_of_topics=False,
)
