"""A shard with its partition and load state, and the table of hosted partitions. No I/O."""

from __future__ import annotations

import enum
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.log import Series
from klamm.coordinator.runtime.pipeline import Write
from klamm.coordinator.runtime.shard import Shard
from klamm.coordinator.runtime.timers import UNREAD_MS
from klamm.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger("klamm.coordinator")

ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])
Refuse = Callable[[ErrorCode], Any]
"""Makes the response for a request that fails with an error."""
Effects = list[Any]
"""`Reply`s and effects specific to the shard."""


class LoadState(enum.Enum):
    """Whether a partition that this node leads can be served."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class HostedShard(Generic[ShardT]):
    """The shard of a partition that this node leads, with the leader epoch of its election."""

    partition: int
    leader_epoch: int
    shard: ShardT
    series_numbers: Iterator[int] = field(default_factory=itertools.count)
    """Those of all shards of the topic, so that no series of the partition has the number of an earlier one."""
    series: Series = field(init=False)
    """The series of the appends since the last failed one."""
    state: LoadState = LoadState.LOADING
    is_touched: bool = False
    """Whether the driver still has to append the shard's records."""
    unanswered: dict[Ticket, Refuse] = field(default_factory=dict)
    """The requests without a response yet, each with the function that makes an error response."""
    failures: int = 0
    """How often in a row the shard failed or could not be loaded."""
    load_error: str = ""
    """Why the last load failed, so that each reason is logged once."""
    active_since_ms: int = 0
    deferred: list[Callable[[ShardT, int], Effects]] = field(default_factory=list)
    """Events that arrived during the load."""

    def __post_init__(self) -> None:
        self._begin_series()

    def _begin_series(self) -> None:
        self.series = Series(self.leader_epoch, next(self.series_numbers))

    def take_append(self) -> Write[Any] | None:
        """A write to append in `series`, reported to `on_append_done` later; None while enough are in flight."""
        return self.shard.pipeline.take_append()

    def on_append_done(self, now_ms: int, write: Write[Any], error: ErrorCode = ErrorCode.NONE) -> Effects:
        """An append was committed, or failed; a failure rolls back the write and all later ones."""
        pipeline = self.shard.pipeline
        if error is ErrorCode.NONE:
            pipeline.on_committed(now_ms, write)
        else:
            self._roll_back(now_ms, write, error)
        return pipeline.take_effects()

    def _roll_back(self, now_ms: int, write: Write[Any], error: ErrorCode) -> None:
        pipeline = self.shard.pipeline
        failed = pipeline.take_failed(write)
        if not failed:
            return
        log.warning("an append failed: %s; %d writes are rolled back", error.name, len(failed))
        self._begin_series()
        for each in failed:
            self.shard.rollback(each.snapshot)
        pipeline.fail(now_ms, failed, error)

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`, if nothing else happens."""
        timer, waiting = self.shard.timers.deadline_ms, self.shard.pipeline.deadline_ms
        if timer is None or waiting is None:
            return waiting if timer is None else timer
        return min(timer, waiting)

    def on_timer(self, now_ms: int) -> Effects:
        """Run the timers that are due."""
        shard = self.shard
        shard.pipeline.on_timer(now_ms)
        effects: Effects = shard.pipeline.take_effects()
        for key in shard.timers.pop_due(now_ms):
            effects += shard.on_timer(now_ms, key)
        return effects

    def on_pause(self, now_ms: int, pause_ms: int) -> Effects:
        """The process did not run for `pause_ms`: extend the timers, also for reading the queued requests."""
        self.shard.timers.put_off(pause_ms + UNREAD_MS)
        return self.shard.on_pause(now_ms, pause_ms)

    def on_unloaded(self, now_ms: int) -> Effects:
        """The partition is no longer led here: requests that wait for a commit are answered with NOT_COORDINATOR."""
        effects: Effects = self.shard.on_unloaded(now_ms)
        pipeline = self.shard.pipeline
        pipeline.fail(now_ms, pipeline.take_all(), ErrorCode.NOT_COORDINATOR)
        return effects + pipeline.take_effects()


class HostedShards(Generic[ShardT]):
    """The partitions that this node leads."""

    def __init__(self, make_shard: Callable[[], ShardT]) -> None:
        self._make_shard = make_shard
        self._by_partition: dict[int, HostedShard[ShardT]] = {}
        self._series_numbers = itertools.count(1)

    def add(self, partition: int, leader_epoch: int) -> HostedShard[ShardT]:
        """Add a partition that this node leads; the caller loads it."""
        hosted = HostedShard(partition, leader_epoch, self._make_shard(), self._series_numbers)
        self._by_partition[partition] = hosted
        return hosted

    def empty(self, hosted: HostedShard[ShardT]) -> None:
        """Replace the shard by an empty one, so that the partition is loaded from the start."""
        hosted.shard = self._make_shard()

    def remove(self, partition: int) -> HostedShard[ShardT] | None:
        """Remove a partition that this node no longer leads."""
        return self._by_partition.pop(partition, None)

    def get(self, partition: int) -> HostedShard[ShardT] | None:
        """The partition's shard, if this node leads it."""
        return self._by_partition.get(partition)

    def all(self) -> list[HostedShard[ShardT]]:
        """All hosted shards in any state."""
        return list(self._by_partition.values())

    def active(self, partition: int) -> HostedShard[ShardT]:
        """The partition's active shard. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        hosted = self._by_partition.get(partition)
        if hosted is None or hosted.state is LoadState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if hosted.state is LoadState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def all_active(self) -> list[HostedShard[ShardT]]:
        """Every active shard. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them is loading."""
        hosted = [one for one in self._by_partition.values() if one.state is not LoadState.FAILED]
        if any(one.state is LoadState.LOADING for one in hosted):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted
