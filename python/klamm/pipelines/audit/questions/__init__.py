"""The questions that are ready, by name: one definition of each, in plain Python, a module each.

A question is asked of the records (`RecordQuestion`), in this process where the log fits into its memory, else in
Spark's tasks, each for its share of the topics; or of the answers to others (`DerivedQuestion`). What an answer counts
is in the docstring of the function that gives its rows.

What every answer has in common: times are those that the controller wrote; an interval is `[from, to)`, and one that
lasts to the log's end is open: `to_offset` and `to_time` are null, and it is measured up to the log's newest timestamp.
Where the log begins with a snapshot, what that holds is known as of the last record in it, with that record's time:
what began earlier is counted from there, and `is_from_snapshot` says so.
"""

from __future__ import annotations

from typing import Final

from klamm.pipelines.audit.questions.answer import DerivedQuestion, RecordQuestion
from klamm.pipelines.audit.questions.brokers import broker_states
from klamm.pipelines.audit.questions.configs import config_changes
from klamm.pipelines.audit.questions.elections import elections
from klamm.pipelines.audit.questions.history import partition_history
from klamm.pipelines.audit.questions.incidents import incidents
from klamm.pipelines.audit.questions.intervals import leaderless, under_replicated
from klamm.pipelines.audit.questions.isr import isr_changes, isr_churn
from klamm.pipelines.audit.questions.leadership import leadership
from klamm.pipelines.audit.questions.topics import topic_changes
from klamm.pipelines.audit.questions.unclean import unclean_elections

QUESTIONS: Final[dict[str, RecordQuestion | DerivedQuestion]] = {
    "leadership": leadership,
    "under_replicated": under_replicated,
    "leaderless": leaderless,
    "isr_changes": isr_changes,
    "isr_churn": isr_churn,
    "config_changes": config_changes,
    "elections": elections,
    "unclean_elections": unclean_elections,
    "broker_states": broker_states,
    "topic_changes": topic_changes,
    "incidents": incidents,
}
HISTORY: Final = "partition_history"
ASKED_OF_FACTS: Final = {
    **{name: one for name, one in QUESTIONS.items() if isinstance(one, RecordQuestion)},
    HISTORY: partition_history,
}
ASKED_OF_ANSWERS: Final = {name: one for name, one in QUESTIONS.items() if isinstance(one, DerivedQuestion)}
