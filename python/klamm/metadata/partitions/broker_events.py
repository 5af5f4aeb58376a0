"""Events of brokers, as causes of the changes of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm.metadata.log.entries import Entry
from klamm.protocol.generated import metadata_records as mr

AWAY: Final = frozenset({"fenced", "shutting down", "unregistered"})
_SOON_MS: Final = 1000
BROKER_TYPES: Final = frozenset(
    record.TYPE
    for record in (
        mr.RegisterBrokerRecord,
        mr.UnregisterBrokerRecord,
        mr.FenceBrokerRecord,
        mr.UnfenceBrokerRecord,
        mr.BrokerRegistrationChangeRecord,
    )
)
_WORDS: Final = {
    "fenced": "was fenced",
    "unfenced": "was unfenced",
    "shutting down": "began its controlled shutdown",
    "unregistered": "was unregistered",
    "registered": "registered again",
    "log directories": "lost or regained a log directory",
}


class BrokerEvent(NamedTuple):
    """One thing that a record says of a broker."""

    broker: int
    kind: str
    """fenced, unfenced, shutting down, unregistered, registered or log directories."""
    offset: int
    batch: int
    epoch: int
    timestamp_ms: int

    @property
    def text(self) -> str:
        """`broker 2 was fenced (offset 71)`."""
        return f"broker {self.broker} {_WORDS[self.kind]} (offset {self.offset})"


def events_of(entry: Entry) -> list[BrokerEvent]:
    """The events of a broker in the record; empty for most records."""
    if entry.control is not None or entry.type_id not in BROKER_TYPES:
        return []
    where = entry.offset, entry.batch, entry.epoch, entry.timestamp_ms
    match record := entry.record():
        case mr.RegisterBrokerRecord():
            return [BrokerEvent(record.broker_id, "registered", *where)]
        case mr.UnregisterBrokerRecord():
            return [BrokerEvent(record.broker_id, "unregistered", *where)]
        case mr.FenceBrokerRecord():
            return [BrokerEvent(record.id, "fenced", *where)]
        case mr.UnfenceBrokerRecord():
            return [BrokerEvent(record.id, "unfenced", *where)]
        case mr.BrokerRegistrationChangeRecord():
            kinds = {1: ["fenced"], -1: ["unfenced"]}.get(record.fenced, [])
            kinds = kinds + ["shutting down"] * (record.in_controlled_shutdown == 1)
            kinds = kinds + ["log directories"] * bool(record.log_dirs)
            return [BrokerEvent(record.broker_id, kind, *where) for kind in kinds]
        case _:
            return []


class BrokerEvents:
    """All of them, in the log's order."""

    def __init__(self, events: Iterable[BrokerEvent]) -> None:
        self._by_broker: dict[int, list[BrokerEvent]] = {}
        for event in events:
            self._by_broker.setdefault(event.broker, []).append(event)

    def latest(self, broker: int, upto: int, kinds: Iterable[str] | None = None) -> BrokerEvent | None:
        """The last event of a broker at or before an offset, of those kinds."""
        wanted = None if kinds is None else frozenset(kinds)
        fitting = (one for one in self._by_broker.get(broker, ()) if wanted is None or one.kind in wanted)
        return max((one for one in fitting if one.offset <= upto), key=lambda one: one.offset, default=None)

    def cause(self, broker: int, of: Entry) -> BrokerEvent | None:
        """The broker event that explains a record: in its batch, right after it, or since the broker is away.

        A controller that fences a broker writes first what follows for partitions, in several batches if it is much.
        """
        events = self._by_broker.get(broker, ())
        with_it = [one for one in events if one.batch == of.batch]
        if with_it:
            return with_it[-1]
        last = self.latest(broker, of.offset)
        if last is not None and last.kind in AWAY:
            return last
        soon = (one for one in events if one.offset > of.offset and one.epoch == of.epoch and one.kind in AWAY)
        return next((one for one in soon if 0 <= one.timestamp_ms - of.timestamp_ms <= _SOON_MS), None)
