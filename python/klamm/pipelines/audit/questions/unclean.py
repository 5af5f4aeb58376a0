"""Unclean elections: leaders that may lack acknowledged records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.pipelines.audit.partition_history import RECOVERING, Change, State, history
from klamm.pipelines.audit.questions.answer import BOOL, IDS, INT, LONG, TEXT, TIME, RecordQuestion, Rows

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts

_UNASSIGNED: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_MIGRATING: Final = "AAAAAAAAAAAAAAAAAAAAAg"
"""Directory ids that do not identify a directory (KIP-858)."""


def is_unclean(facts: Facts, change: Change, before: State) -> bool:
    """Whether the record elects a leader uncleanly."""
    after = change.after
    is_new = after.leader is not None and after.leader != before.leader
    was_eligible = after.leader in before.isr or after.leader in before.elr
    is_recovering = after.leader_recovery_state == RECOVERING
    begins_to_recover = is_recovering and before.leader_recovery_state != RECOVERING
    # A replica that joins the ISR by a reassignment may become leader by the same record, and lacks nothing.
    is_added = after.leader in before.adding_replicas and not is_recovering
    unclean = (is_new and not was_eligible and not is_added) or begins_to_recover
    return unclean and not _is_sole_replica_come_back(facts, change, before)


def _is_sole_replica_come_back(facts: Facts, change: Change, before: State) -> bool:
    """Whether the leader is the only replica, in the same directory as before: no other replica could have more.

    After an unclean shutdown a controller takes it out of the ISR and then elects it as the last leader that is known,
    with the recovery state of an unclean election (KIP-966). A broker that comes back without the directory has lost
    the records.
    """
    after = change.after
    if after.replicas != before.replicas or after.replicas != [after.leader]:
        return False
    directories = [one for one in before.directories if one not in (_UNASSIGNED, _MIGRATING)]
    there = _log_dirs(facts, after.replicas[0], change.offset)
    return not directories or not there or set(directories) <= there


def _log_dirs(facts: Facts, broker: int, offset: int) -> set[str]:
    """The directories of the broker's last registration before a record; empty where it names none."""
    if "log_dirs" not in facts.kept:
        found: dict[int, list[tuple[int, set[str]]]] = {}
        for row in facts.rows("RegisterBrokerRecord"):
            found.setdefault(row["broker_id"], []).append((row["offset"], set(row.get("log_dirs") or ())))
        facts.kept["log_dirs"] = found
    earlier = [dirs for at, dirs in facts.kept["log_dirs"].get(broker, ()) if at <= offset]
    return earlier[-1] if earlier else set()


def _rows(facts: Facts) -> Rows:
    """Every record that elects a leader which was neither in the ISR nor in the ELR, or says so itself.

    That is: the new leader is in neither of the two as they were before the record; or the record sets the leader
    recovery state to RECOVERING, as a controller does with an unclean election (KIP-704). A replica that is being
    added may enter the ISR and lead by one record, which is clean unless the state says otherwise. The only replica of
    a partition, come back with the directory that it had, is no unclean leader, whatever the record says.

    topic, topic_id, partition, offset, epoch, timestamp; from_leader (null: there was none), to_leader; leader_epoch;
    isr_before, elr_before: who had all that was acknowledged; is_recovering (the record, or one before it, says so);
    recovered_offset and recovered_time: of the next record by which the partition has recovered (null: none).
    """
    for of_partition in history(facts).values():
        for at, change in enumerate(of_partition):
            before, after = change.before, change.after
            if change.event != "changed" or before is None or not is_unclean(facts, change, before):
                continue
            is_recovering = after.leader_recovery_state == RECOVERING
            later = of_partition[at + 1 :] if is_recovering else []
            recovered = next((one for one in later if _has_recovered(one)), None)
            yield (
                change.topic,
                change.topic_id,
                change.partition,
                change.offset,
                change.epoch,
                change.time_ms,
                before.leader,
                after.leader,
                after.leader_epoch,
                before.isr,
                before.elr,
                is_recovering,
                recovered and recovered.offset,
                recovered and recovered.time_ms,
            )


def _has_recovered(change: Change) -> bool:
    return change.event != "deleted" and change.after.leader_recovery_state != RECOVERING


unclean_elections = RecordQuestion(
    {
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INT,
        "offset": LONG,
        "epoch": INT,
        "timestamp": TIME,
        "from_leader": INT,
        "to_leader": INT,
        "leader_epoch": INT,
        "isr_before": IDS,
        "elr_before": IDS,
        "is_recovering": BOOL,
        "recovered_offset": LONG,
        "recovered_time": TIME,
    },
    _rows,
)
