"""Heartbeats that a paused controller has not read: it takes none of their brokers for silent (decision 44)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from klamm.protocol.generated.metadata_records import BrokerRegistrationChangeRecord, decode
from klamm.testing.simulator.invariants import InvariantViolatedError

FENCED = 1


class UnreadHeartbeats:
    """By controller, the brokers whose heartbeats have arrived at the process, and wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, Counter[tuple[int, int]]] = {}

    def on_arrived(self, controller_id: int, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat has arrived."""
        self._waiting.setdefault(controller_id, Counter())[broker_id, broker_epoch] += 1

    def on_read(self, controller_id: int, broker_id: int, broker_epoch: int) -> None:
        """The controller handles one."""
        self._waiting[controller_id][broker_id, broker_epoch] -= 1

    def on_started(self, controller_id: int) -> None:
        """A life of the controller begins."""
        self._waiting.pop(controller_id, None)

    def check(self, controller_id: int, records: Sequence[bytes]) -> None:
        """What a controller decides because some time has passed. Raises InvariantViolatedError."""
        waiting = self._waiting.get(controller_id, Counter())
        for record in map(decode, records) if waiting.total() else ():
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCED:
                count = waiting[record.broker_id, record.broker_epoch]
                if count:
                    raise InvariantViolatedError(
                        f"controller {controller_id} fences broker {record.broker_id}, of which {count} heartbeats wait"
                    )
