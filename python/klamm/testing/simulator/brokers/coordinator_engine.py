"""The part of a node's engine that coordinators use, on a simulated broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm._engine.records import encode_batch, record_batches
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.testing.simulator.brokers.replication import Life

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm._engine.node import LogLoad
    from klamm.node.coordinators.appends import Appends
    from klamm.node.coordinators.marker_writer import EngineMarker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.replication import Replication

PART_BYTES: Final = 5_000
"""A load has several parts, as that of a large log has."""


class CoordinatedLife(Life, Protocol):
    """The life of a broker as its coordinators see it."""

    is_up: bool
    image: Image
    replication: Replication

    def on_pruned(self, key: Key, offset: int) -> None:
        """A coordinator has deleted the records below this offset."""


class CoordinatorEngine:
    """Appends and loads; `klamm._engine.node.Engine` as `EngineCoordinatorLog` and `MarkerWriter` see it."""

    def __init__(
        self,
        broker: CoordinatedLife,
        appends: Appends,
        on_effect: Callable[[], None],
        on_change: Callable[[], None],
        write_s: Callable[[], float],
    ) -> None:
        """`on_effect` is called after each append, when the process may crash; `on_change` when more is possible.

        `write_s` draws how long a write takes.
        """
        self._write_s = write_s
        self._broker, self._appends, self._on_effect, self._on_change = broker, appends, on_effect, on_change
        self._orders: deque[Callable[[], None]] = deque()
        """What the append thread has not done yet."""
        self._is_working = False

    def append(self, topic_id: bytes, batches: Sequence[tuple[Any, ...]], timestamp_ms: int, codec: int = 0) -> None:
        """See `Engine.append`."""
        for index, token, series, records, *producers in batches:
            rows = [(timestamp_ms, key, value) for key, value in records]
            fields: dict[str, Any] = {}
            for producer_id, epoch in producers:
                fields = {
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "base_sequence": 0,
                    "transactional": True,
                }
            self._order(self._append, (topic_id, index), token, series, encode_batch(rows, **fields))

    def _order(self, append: Callable[..., None], *arguments: Any) -> None:
        """As in the product, a thread appends in order, a while later."""
        self._orders.append(partial(append, *arguments))
        self._work_later()

    def _work_later(self) -> None:
        if self._orders and not self._is_working:
            self._is_working = True
            asyncio.get_running_loop().call_later(self._write_s(), self._work)

    def _work(self) -> None:
        self._is_working = False
        if self._orders:
            self._orders.popleft()()
        self._work_later()

    def _settle(self) -> None:
        """Do what was ordered before, as a read waits for it."""
        while self._orders:
            self._orders.popleft()()

    def _append(self, key: Key, token: int, series: tuple[int, int] | None, batch: bytes) -> None:
        engine, now_ms = self._broker.engine, self._broker.now_ms
        self._broker.replication.append_own(
            lambda ticket: engine.append_own(key, batch, series, ticket, now_ms), self._done(token), key, batch
        )
        self._on_effect()

    def append_markers(self, markers: Sequence[EngineMarker], timestamp_ms: int, *, needs_min_isr: bool = True) -> None:
        """See `Engine.append_markers`."""
        for topic_id, index, token, series, *fields in markers:
            self._order(self._append_marker, (topic_id, index), token, series, tuple(fields), needs_min_isr)

    def _append_marker(
        self, key: Key, token: int, series: tuple[int, int] | None, marker: Any, needs_min_isr: bool
    ) -> None:
        engine, now_ms = self._broker.engine, self._broker.now_ms
        self._broker.replication.append_own(
            lambda ticket: engine.append_marker(key, marker, needs_min_isr, series, ticket, now_ms),
            self._done(token),
            key,
        )
        self._on_effect()

    def _done(self, token: int) -> Callable[[int], None]:
        """As in the product, the result is an event of the loop."""
        loop = asyncio.get_running_loop()
        return lambda code: _call_soon(loop, self._appends, token, code)

    def must_recover(self, topic_id: bytes, partition: int) -> bool:
        """Logs are open when a broker serves."""
        return False

    def load(self, topic_id: bytes, partition: int, read_bytes: int, *, latest_only: bool) -> LogLoad:
        """See `Engine.load`."""
        self._settle()
        return self._broker.engine.load((topic_id, partition), read_bytes, PART_BYTES, latest_only, _partition_error)

    def read_records(
        self, topic_id: bytes, partition: int, offset: int, max_bytes: int
    ) -> tuple[int, list[tuple[int, bytes | None, bytes | None, int, bool]]]:
        """See `Engine.read_records`; the batch with this offset."""
        self._settle()
        batch = next(iter(record_batches(self._broker.engine.batches((topic_id, partition), offset))), None)
        if batch is None:
            return offset, []
        found = [(record.offset, record.key, record.value, batch.producer_id, False) for record in batch.records()]
        return batch.last_offset + 1, found

    def delete_records(self, topic_id: bytes, partition: int, offset: int) -> int:
        """See `Engine.delete_records`."""
        key = topic_id, partition
        code, deleted_to = self._broker.engine.delete_records(key, offset, self._broker.now_ms)
        if code != ErrorCode.NONE:
            raise _partition_error(code, None)
        self._broker.on_pruned(key, deleted_to)
        return deleted_to

    def share_states_answered(self, answers: Sequence[tuple[int, ErrorCode, bytes]]) -> None:
        """See `Engine.share_states_answered`."""
        for request_id, code, body in answers:
            self._broker.engine.share_state_answered(request_id, code, body, self._broker.now_ms)
        self._on_change()


def _partition_error(code: int, message: str | None) -> Exception:
    return KafkaError(ErrorCode(code), message or "")


def _call_soon(loop: asyncio.AbstractEventLoop, appends: Appends, token: int, code: int) -> None:
    loop.call_soon(appends.on_acked, token, code)
