"""Every state of every partition, from the records that create, change and remove it; most questions use it.

A PartitionRecord contains the whole state of a partition, a PartitionChangeRecord the fields that change: absent fields
(null, -2 as a leader, -1 as a recovery state) are unchanged. A leader in it, even the same one, increments the leader
epoch; each change increments the partition epoch. RemoveTopicRecord ends the partitions of its topic; ClearElrRecord
empties the ELRs of one topic or of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from klamm.pipelines.audit.facts import Facts, Row

RECOVERING: Final = 1
"""The leader recovery state after an unclean election."""
_NO_CHANGE: Final = -2
Key = tuple[str, int]
"""Topic id and number."""


class State(NamedTuple):
    """A partition after a record."""

    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    elr: list[int]
    last_known_elr: list[int]
    leader_recovery_state: int
    directories: list[str]
    """The directory of each replica; none before metadata.version 3.7."""


class Change(NamedTuple):
    """A change of a partition by a record."""

    topic: str | None
    """None: the record with its name was cleaned."""
    topic_id: str
    partition: int
    event: str
    """`snapshot` (the state that a snapshot begins with), `created`, `changed`, `elr cleared` or `deleted`."""
    offset: int
    batch: int
    epoch: int
    time_ms: int
    after: State
    """A deleted partition has no leader; its other fields are unchanged."""
    before: State | None


History = dict[Key, list[Change]]


def history(facts: Facts) -> History:
    """The changes of each partition, by offset; computed once."""
    if "history" not in facts.kept:
        facts.kept["history"] = _Fold(facts).fold()
    found: History = facts.kept["history"]
    return found


def changes(facts: Facts, event: str = "changed") -> Iterator[tuple[Change, State]]:
    """The changes of one kind of all partitions, each with the state before it."""
    for of_partition in history(facts).values():
        for change in of_partition:
            if change.event == event and change.before is not None:
                yield change, change.before


class _Fold:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._names: dict[str, str] = {row["topic_id"]: row["name"] for row in facts.rows("TopicRecord")}
        self._found: History = {}
        self._living: dict[str, dict[int, State]] = {}
        """Partitions by topic id and number."""

    def fold(self) -> History:
        steps = {
            "PartitionRecord": self._create,
            "PartitionChangeRecord": self._change,
            "RemoveTopicRecord": self._remove,
            "ClearElrRecord": self._clear,
        }
        rows = [(row["offset"], step, row) for name, step in steps.items() for row in self._facts.rows(name)]
        for _, step, row in sorted(rows, key=lambda one: one[0]):
            step(row)
        return self._found

    def _create(self, row: Row) -> None:
        state = State(
            _leader(row["leader"]),
            row["leader_epoch"],
            row["partition_epoch"],
            row["replicas"] or [],
            row["isr"] or [],
            row["adding_replicas"] or [],
            row["removing_replicas"] or [],
            row["eligible_leader_replicas"] or [],
            row["last_known_elr"] or [],
            row["leader_recovery_state"],
            row.get("directories") or [],
        )
        event = "created" if row["snapshot"] is None else "snapshot"
        self._note(row, row["topic_id"], row["partition_id"], event, state)

    def _change(self, row: Row) -> None:
        before = self._living.get(row["topic_id"], {}).get(row["partition_id"])
        if before is None:
            return
        record_values = {
            "replicas": row["replicas"],
            "isr": row["isr"],
            "adding_replicas": row["adding_replicas"],
            "removing_replicas": row["removing_replicas"],
            "elr": row["eligible_leader_replicas"],
            "last_known_elr": row["last_known_elr"],
            "directories": row.get("directories"),
        }
        changes: dict[str, Any] = {name: value for name, value in record_values.items() if value is not None}
        if row["leader"] != _NO_CHANGE:
            changes |= {"leader": _leader(row["leader"]), "leader_epoch": before.leader_epoch + 1}
        if row["leader_recovery_state"] != -1:
            changes["leader_recovery_state"] = row["leader_recovery_state"]
        after = before._replace(partition_epoch=before.partition_epoch + 1, **changes)
        self._note(row, row["topic_id"], row["partition_id"], "changed", after)

    def _remove(self, row: Row) -> None:
        for number, before in self._living.pop(row["topic_id"], {}).items():
            self._note(row, row["topic_id"], number, "deleted", before._replace(leader=None))

    def _clear(self, row: Row) -> None:
        for topic_id, partitions in self._living.items():
            if row["topic_name"] not in ("", self._names.get(topic_id)):
                continue
            for number, before in list(partitions.items()):
                if before.elr or before.last_known_elr:
                    epoch = before.partition_epoch + 1
                    after = before._replace(elr=[], last_known_elr=[], partition_epoch=epoch)
                    self._note(row, topic_id, number, "elr cleared", after)

    def _note(self, row: Row, topic_id: str, number: int, event: str, after: State) -> None:
        of_partition = self._found.setdefault((topic_id, number), [])
        before = of_partition[-1].after if of_partition else None
        place = row["offset"], row["batch"], row["epoch"], row["time_ms"]
        of_partition.append(Change(self._names.get(topic_id), topic_id, number, event, *place, after, before))
        if event != "deleted":
            self._living.setdefault(topic_id, {})[number] = after


def _leader(leader: int) -> int | None:
    return None if leader < 0 else leader
