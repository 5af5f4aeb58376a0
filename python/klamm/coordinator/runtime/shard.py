"""What a shard has to provide, and what it gets for it (Kafka's `CoordinatorShard`)."""

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

    The runtime replays the partition's log and reports its end. After that it passes one event after the other, each
    with the time: those below, and the requests, which are the shard's own methods `on_<request>(now_ms, ticket, ...)`.
    Each returns effects, which are those collected in `pipeline`.

    1. A request changes the state only after `pipeline.write` of the records that say the same, and keeps the snapshot
       that it returns able to restore the state before.
    2. Every ticket is answered exactly once, by `pipeline.reply` or `reply_when_committed`, now or later.
    3. What is read for an answer without a write is the state without the writes of `pipeline.snapshots`, or the answer
       waits (`reply_when_committed`).

    An exception ends this shard's state: the runtime refuses the requests that wait and loads the shard again.
    """

    @property
    def pipeline(self) -> Pipeline[S, E]:
        """The shard's way to the log and to its clients."""
        ...

    @property
    def timers(self) -> Timers[K]:
        """The shard's timers: `on_timer` is called for each that is due."""
        ...

    def replay(self, record: LoadedRecord) -> None:
        """Take in a record of the log. Raises RecordError for one that cannot be read."""
        ...

    def rollback(self, snapshot: S) -> None:
        """Restore the state before a write, the newest that is there: its append failed, or that of an older one."""
        ...

    def on_loaded(self, now_ms: int) -> list[Reply | E]:
        """All records were replayed; requests follow."""
        ...

    def on_unloaded(self, now_ms: int) -> list[Reply | E]:
        """The partition is no longer led here. Requests that wait, other than for a commit, are to be answered."""
        ...

    def on_timer(self, now_ms: int, key: K) -> list[Reply | E]:
        """A timer is due."""
        ...

    def on_pause(self, now_ms: int, pause_ms: int) -> list[Reply | E]:
        """The process did not run for `pause_ms` before `now_ms`, while requests came and were not read.

        All timers have been put off by that time and by the time that reading the requests may take.
        """
        ...
