"""Finds brokers that have crashed before their session ends, by evidence: a lost connection and two refused probes, or
a lost connection and a new process that holds the log directories.

A broker keeps a connection to the active controller for its heartbeats. When its process ends, the connection closes
and its listener refuses new ones; a broker that is only slow, or cut off, does neither. The evidence never comes from
silence, and a false alarm costs only an election: the broker's next heartbeat unfences it. A listener counts only
after it has accepted a connection of this controller, because something else may refuse on its behalf.

Every controller probes the brokers of the image once, so that one that becomes active knows which listeners answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

REFUSALS: Final = 2
"""After this many refused probes in a row, without a connection in between, the process has ended."""


class ProbeOutcome(enum.Enum):
    """The outcome of an attempt to connect to a broker's listener."""

    ACCEPTED = enum.auto()
    REFUSED = enum.auto()
    UNKNOWN = enum.auto()
    """No answer, or no route: it says nothing about the process."""


class Probe(NamedTuple):
    """Connect to the listener of a broker, and report the outcome. `is_repeated`: after a short pause."""

    broker_id: int
    broker_epoch: int
    is_repeated: bool = False


class Crashed(NamedTuple):
    """The process of this broker has ended."""

    broker_id: int
    broker_epoch: int
    has_returned: bool = False
    """Whether the evidence is the registration of its next process."""


Effect = Probe | Crashed


class _Broker:
    __slots__ = ("epoch", "has_answered", "is_probed", "refusals")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.has_answered = False
        self.is_probed = False
        self.refusals = 0


class _Contact(NamedTuple):
    """The connection of a broker's last heartbeat."""

    connection_id: int
    epoch: int


class BrokerCrashDetection:
    """The evidence about each unfenced broker of the image except the one of this process."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}
        self._contacts: dict[int, _Contact] = {}
        """By broker, also before the image shows it unfenced: the next heartbeat may be seconds away."""
        self._of_connection: dict[int, int] = {}
        self._is_active = False

    def on_brokers(self, unfenced: Mapping[int, int], *, is_active: bool) -> list[Effect]:
        """The unfenced brokers of a newer image, with their epochs, and whether this controller is the active one."""
        for broker_id, known in list(self._brokers.items()):
            if unfenced.get(broker_id) != known.epoch:
                del self._brokers[broker_id]
        self._is_active = is_active
        effects: list[Effect] = []
        for broker_id, epoch in unfenced.items():
            broker = self._brokers.setdefault(broker_id, _Broker(epoch))
            # After a change of controllers a broker has no connection to the new one until its next heartbeat.
            if not broker.has_answered or (is_active and not self._is_connected(broker_id, epoch)):
                effects += self._probe(broker_id, broker)
        return effects

    def on_heartbeat(self, connection_id: int, broker_id: int, broker_epoch: int) -> None:
        """A broker sent a heartbeat on this connection: it is alive."""
        contact = _Contact(connection_id, broker_epoch)
        if self._contacts.get(broker_id) == contact:
            return
        self._drop(connection_id)
        before = self._contacts.get(broker_id)
        if before is not None:
            self._drop(before.connection_id)
        self._contacts[broker_id] = contact
        self._of_connection[connection_id] = broker_id
        broker = self._brokers.get(broker_id)
        if broker is not None:
            broker.refusals = 0

    def on_closed(self, connection_id: int) -> list[Effect]:
        """A connection was closed, of a broker or of another."""
        contact = self._drop(connection_id)
        if contact is None:
            return []
        broker_id, epoch = contact
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or not broker.has_answered or not self._is_active:
            return []
        broker.refusals = 0
        return self._probe(broker_id, broker)

    def on_returned(self, broker_id: int) -> list[Effect]:
        """A new incarnation with the same log directories registers. One process at a time can lock them."""
        broker = self._brokers.get(broker_id)
        if broker is None or not self._is_active or self._is_connected(broker_id, broker.epoch):
            return []
        return [Crashed(broker_id, broker.epoch, has_returned=True)]

    def _drop(self, connection_id: int) -> tuple[int, int] | None:
        """Forget a connection; the broker and the epoch of its last heartbeat."""
        broker_id = self._of_connection.pop(connection_id, None)
        return None if broker_id is None else (broker_id, self._contacts.pop(broker_id).epoch)

    def _is_connected(self, broker_id: int, epoch: int) -> bool:
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.epoch == epoch

    def on_probed(self, broker_id: int, broker_epoch: int, outcome: ProbeOutcome) -> list[Effect]:
        """The outcome of a probe."""
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return []
        broker.is_probed = False
        if outcome is ProbeOutcome.ACCEPTED:
            broker.has_answered = True
        is_lost = broker.has_answered and not self._is_connected(broker_id, broker_epoch)
        if outcome is not ProbeOutcome.REFUSED or not is_lost or not self._is_active:
            broker.refusals = 0
            return []
        broker.refusals += 1
        if broker.refusals < REFUSALS:
            broker.is_probed = True
            return [Probe(broker_id, broker_epoch, is_repeated=True)]
        broker.refusals = 0
        return [Crashed(broker_id, broker_epoch)]

    def _probe(self, broker_id: int, broker: _Broker) -> list[Effect]:
        if broker.is_probed:
            return []
        broker.is_probed = True
        return [Probe(broker_id, broker.epoch)]
