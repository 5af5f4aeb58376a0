"""The questions that are ready, by name: functions of an `Audit` that give a DataFrame, one a module.

What every answer has in common: times are those that the controller wrote, in the time zone of the session; an
interval is `[from, to)`, and one that lasts to the log's end is open: `to_offset` and `to_time` are null, and it is
measured up to the log's newest timestamp. Where the log begins with a snapshot, what that holds is known as of the last
record in it, with that record's time: what began earlier is counted from there, and `is_from_snapshot` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm.pipelines.audit.questions.brokers import broker_states
from klamm.pipelines.audit.questions.configs import config_changes
from klamm.pipelines.audit.questions.elections import elections
from klamm.pipelines.audit.questions.intervals import leaderless, under_replicated
from klamm.pipelines.audit.questions.isr import isr_changes, isr_churn
from klamm.pipelines.audit.questions.leadership import leadership
from klamm.pipelines.audit.questions.unclean import unclean_elections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit.audit import Audit

QUESTIONS: Final[dict[str, Callable[[Audit], DataFrame]]] = {
    "leadership": leadership,
    "under_replicated": under_replicated,
    "leaderless": leaderless,
    "isr_changes": isr_changes,
    "isr_churn": isr_churn,
    "config_changes": config_changes,
    "elections": elections,
    "unclean_elections": unclean_elections,
    "broker_states": broker_states,
}
