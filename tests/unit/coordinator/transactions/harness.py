"""A transaction shard with a log in memory, a clock, and markers that are written when the test says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from tests.unit.coordinator.hosting_room import HostingRoom

from klamm.coordinator.runtime.log import LoadedRecord, LogRecord
from klamm.coordinator.transactions.config import TransactionConfig
from klamm.coordinator.transactions.shard import (
    ADD_WAIT_MS,
    ADD_WAIT_OF_BROKERS_MS,
    TransactionShard,
    WriteMarkers,
)
from klamm.coordinator.transactions.transaction import Transaction
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.transactions import AddRequest, EndRequest, InitRequest, Pair, Place

ID = "orders"
TIMEOUT_MS = 60_000
A, B = ("a", 0), ("b", 1)


@dataclass
class Room(HostingRoom):
    """The shard and its effects."""

    log: list[LogRecord] = field(default_factory=list)
    version: int = 2
    """The cluster's transaction.version."""
    config: TransactionConfig = field(default_factory=TransactionConfig)
    first_producer_id: int = 1000

    def __post_init__(self) -> None:
        self.now_ms = 1_000_000_000
        self.markers: list[WriteMarkers] = []
        self.has_producer_ids = True
        self._producer_ids = iter(range(self.first_producer_id, 1 << 62))
        self.shard = TransactionShard(self.config, self._take_producer_id, lambda: self.version)
        for offset, (key, value) in enumerate(self.log):
            self.shard.replay(LoadedRecord(offset, key, value))
        self.host(self.shard)

    def restarted(self) -> Room:
        """Another coordinator that loads the log."""
        return Room(list(self.log), self.version, self.config, self.first_producer_id + 1000)

    def _take_producer_id(self) -> int | None:
        return next(self._producer_ids) if self.has_producer_ids else None

    def on_effect(self, effect: WriteMarkers) -> None:
        self.markers.append(effect)

    # Requests. Each returns the response, or None while there is none.

    def init(self, pair: tuple[int, int] = (-1, -1), name: str = ID, timeout_ms: int = TIMEOUT_MS) -> Pair | None:
        request = InitRequest(name, timeout_ms, *pair)
        return self.ask(self.shard.on_init_producer_id, request)

    def add(
        self, pair: tuple[int, int], *places: Place, name: str = ID, version: int = 2, wait_ms: int | None = None
    ) -> ErrorCode | None:
        event = partial(self.shard.on_add_partitions, wait_ms=wait_ms)
        return self.ask(event, AddRequest(name, *pair, frozenset(places or (A,)), version))

    def add_in_vain(self, pair: tuple[int, int], *places: Place, version: int = 2) -> ErrorCode | None:
        """The response to a request that waits for its maximum time."""
        assert self.add(pair, *places, version=version) is None
        ticket = self._tickets
        self.pass_time((ADD_WAIT_OF_BROKERS_MS if version == 2 else ADD_WAIT_MS) - 1)
        assert ticket not in self.answers, "it waits for as long as it may"
        self.pass_time(1)
        return self.answers[ticket]

    def end(self, pair: tuple[int, int], *, commit: bool = True, name: str = ID, version: int = 2) -> Pair | None:
        return self.ask(self.shard.on_end, EndRequest(name, *pair, commit, version))

    def verify(self, pair: tuple[int, int], *places: Place, name: str = ID) -> dict[Place, ErrorCode]:
        return self.shard.verify(AddRequest(name, *pair, frozenset(places), 0))

    def write_markers(self) -> list[WriteMarkers]:
        """The requested markers are written."""
        written, self.markers = self.markers, []
        for each in written:
            self.take(self.shard.on_markers_written(self.now_ms, each.transactional_id, each.number))
        return written

    # Shortcuts

    def begun(self, version: int = 2) -> tuple[int, int]:
        """Producer id and epoch of a producer with a transaction on A."""
        pair = self.ready()
        assert self.add(pair, A, version=version) is ErrorCode.NONE
        return pair

    def ready(self, name: str = ID) -> tuple[int, int]:
        """Producer id and epoch of a producer without a transaction."""
        return pair_of(self.init(name=name))

    def at_epoch(self, epoch: int) -> tuple[int, int]:
        """A producer with this epoch."""
        producer_id, _ = self.ready()
        self.transaction().epoch = epoch
        return producer_id, epoch

    def transaction(self, name: str = ID) -> Transaction:
        found = self.shard.describe(name)
        assert found is not None
        return found


def pair_of(answer: Pair | None) -> tuple[int, int]:
    """Producer id and epoch in a response without an error."""
    assert answer is not None, "not answered"
    assert answer.error is ErrorCode.NONE, answer
    return answer.producer_id, answer.epoch
