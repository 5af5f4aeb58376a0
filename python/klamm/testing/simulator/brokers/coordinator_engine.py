"""The part of a node's engine that coordinators use, on a simulated broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from klamm._engine.records import encode_batch, record_batches
from klamm.coordinator.runtime.log import NO_PRODUCER_ID
from klamm.testing.simulator.brokers.replication import Life

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm._engine.records import RecordBatch
    from klamm._engine.simulation import SimulatedBroker
    from klamm.node.coordinators.appends import Appends
    from klamm.node.coordinators.marker_writer import EngineMarker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.replication import Replication


class CoordinatedLife(Life, Protocol):
    """The life of a broker as its coordinators see it."""

    is_up: bool
    image: Image
    replication: Replication


class CoordinatorEngine:
    """Appends and loads; `klamm._engine.node.Engine` as `EngineCoordinatorLog` and `MarkerWriter` see it."""

    def __init__(self, broker: CoordinatedLife, appends: Appends, on_effect: Callable[[], None]) -> None:
        """`on_effect` is called after each append, when the process may crash."""
        self._broker, self._appends, self._on_effect = broker, appends, on_effect

    def append(self, topic_id: bytes, batches: Sequence[tuple[Any, ...]], timestamp_ms: int, codec: int = 0) -> None:
        """See `Engine.append`."""
        for index, token, records in batches:
            rows = [(timestamp_ms, key, value) for key, value in records]
            self._append((topic_id, index), token, encode_batch(rows))

    def _append(self, key: Key, token: int, batch: bytes) -> None:
        engine, now_ms = self._broker.engine, self._broker.now_ms
        self._broker.replication.append_own(
            lambda ticket: engine.produce(key, batch, -1, ticket, now_ms), self._done(token), key, batch
        )
        self._on_effect()

    def append_markers(self, markers: Sequence[EngineMarker], timestamp_ms: int, *, needs_min_isr: bool = True) -> None:
        """See `Engine.append_markers`."""
        assert needs_min_isr, "only group coordinators need none, and there are none"
        engine, now_ms = self._broker.engine, self._broker.now_ms
        for topic_id, index, token, *marker in markers:
            producer_id, epoch, commits, coordinator_epoch, version = marker
            fields = (producer_id, epoch, commits, coordinator_epoch, version)

            def append(ticket: int, key: Key = (topic_id, index), fields: Any = fields) -> tuple[int, int]:
                return engine.append_marker(key, fields, ticket, now_ms)

            self._broker.replication.append_own(append, self._done(token), (topic_id, index))
            self._on_effect()

    def _done(self, token: int) -> Callable[[int], None]:
        """As in the product, the result is an event of the loop."""
        loop = asyncio.get_running_loop()
        return lambda code: _call_soon(loop, self._appends, token, code)

    def must_recover(self, topic_id: bytes, partition: int) -> bool:
        """Logs are open when a broker serves."""
        return False

    def load(self, topic_id: bytes, partition: int, read_bytes: int, *, latest_only: bool) -> LoadedLog:
        """See `Engine.load`. The records of a key that were replaced are not left out: nothing is compacted."""
        return LoadedLog(self._broker.engine, (topic_id, partition))


Row = tuple[int, bytes | None, bytes | None, int, bool]


class LoadedLog:
    """Reads all of a log; `klamm._engine.node.LogLoad`."""

    def __init__(self, engine: SimulatedBroker, key: Key) -> None:
        self._engine, self._key, self._next_offset = engine, key, 0

    def read(self) -> LoadedPart | None:
        """See `LogLoad.read`."""
        found = record_batches(self._engine.batches(self._key, self._next_offset))
        if not found:
            return None
        self._next_offset = found[-1].last_offset + 1
        return LoadedPart([row for batch in found for row in _rows(batch)])


class LoadedPart:
    """Records that were read; `klamm._engine.node.LoadedPart`."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def take(self, count: int) -> list[Row]:
        """See `LoadedPart.take` of the engine."""
        taken, self._rows = self._rows[:count], self._rows[count:]
        return taken


def _rows(batch: RecordBatch) -> list[Row]:
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    return [(one.offset, one.key, one.value, producer_id, batch.is_control) for one in batch.records()]


def _call_soon(loop: asyncio.AbstractEventLoop, appends: Appends, token: int, code: int) -> None:
    loop.call_soon(appends.on_acked, token, code)
