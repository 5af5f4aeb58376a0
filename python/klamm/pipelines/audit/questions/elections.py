"""The elections of the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.pipelines.audit.questions.answer import IDS, INT, LONG, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts


def _rows(facts: Facts) -> Rows:
    """Every leader of the quorum that the log knows: the first record of a leader is its LeaderChangeMessage.

    epoch, leader, voters, granting_voters (who voted for it), offset, timestamp (when it became leader);
    leader_before (null: the log does not contain it); epochs_between: skipped epochs, of elections without a winner, or
    of leaders whose records were truncated or never reached this log; last_offset and last_time: of the last record of
    an earlier epoch; length_ms: from that to the leader's first record, null if there is no earlier record.

    The length shows how long no leader wrote anything. The log does not show when the old leader failed or resigned,
    nor who campaigned when. An idle leader writes a NoOpRecord every metadata.max.idle.interval.ms (500), so the length
    exceeds the time without a leader by at most that; a leader that is the only replica writes none, so the length
    includes the idle time before. The two times come from two machines: if their clocks differ, the length is wrong by
    the difference, and may be negative. Records at the log's end may not be committed yet.
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
