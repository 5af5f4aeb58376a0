"""The interface between a shard and the runtime (Kafka's `CoordinatorShard`)."""

from __future__ import annotations

from typing import Protocol, TypeVar

from klamm.coordinator.runtime.effects import Reply
from klamm.coordinator.runtime.log import LoadedRecord
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers

S = TypeVar("S")
K = TypeVar("K")
E = TypeVar("E")


class Shard(Protocol[S, K, E]):
    """The state machine of one partition, without I/O, whose state is the fold of the partition's records.

    The runtime replays the partition's log and then calls `on_loaded`. After that it passes one event after another,
    each with the time: the events below, and requests, which are the shard's own methods `on_<request>(now_ms, ticket,
    ...)`. Each method returns the effects collected in `pipeline`.

    1. A request changes the state only after `pipeline.write` of the records for the same change. It adds to the
       returned snapshot what a rollback needs to restore the previous state.
    2. Every ticket is answered exactly once, by `pipeline.reply` or `reply_when_committed`, now or later.
    3. A response to a read either ignores the writes of `pipeline.snapshots`, or waits for their commit
       (`reply_when_committed`).

    After an exception the runtime discards this shard's state: it refuses the waiting requests and reloads the shard.
    """

    @property
    def pipeline(self) -> Pipeline[S, E]:
        """Collects records, responses and effects."""
        ...

    @property
    def timers(self) -> Timers[K]:
        """The shard's timers. `on_timer` is called for each key that is due."""
        ...

    def replay(self, record: LoadedRecord) -> None:
        """Apply a record of the log. Raises RecordError if it cannot be read."""
        ...

    def rollback(self, snapshot: S) -> None:
        """Restore the state before a write. Called for the newest write first, after an append failed."""
        ...

    def on_loaded(self, now_ms: int) -> list[Reply | E]:
        """All records were replayed. Requests follow."""
        ...

    def on_unloaded(self, now_ms: int) -> list[Reply | E]:
        """The partition is no longer led here. Answer the requests that wait for something other than a commit."""
        ...

    def on_timer(self, now_ms: int, key: K) -> list[Reply | E]:
        """A timer is due."""
        ...

    def on_pause(self, now_ms: int, pause_ms: int) -> list[Reply | E]:
        """The process did not run for `pause_ms` before `now_ms`; requests arrived meanwhile and were not read.

        All timers are already extended by that time and by the time that reading the requests may take.
        """
        ...
