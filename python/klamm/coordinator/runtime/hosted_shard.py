"""A shard in the partition that it is hosted for, and which partitions have one. No I/O."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from klamm.coordinator.runtime.effects import Ticket
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.shard import Shard
from klamm.coordinator.runtime.timers import UNREAD_MS
from klamm.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger("klamm.coordinator")

ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])
Refuse = Callable[[ErrorCode], Any]
"""Makes the answer to a request that ends with an error."""
Effects = list[Any]
"""`Reply`s and the shard's own effects."""


class LoadState(enum.Enum):
    """How far a partition that is led here is."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class HostedShard(Generic[ShardT]):
    """The shard of a partition that is led here, in the leader epoch of its election."""

    partition: int
    leader_epoch: int
    shard: ShardT
    state: LoadState = LoadState.LOADING
    is_touched: bool = False
    """Whether the driver has yet to look for what the shard wants appended."""
    asked: dict[Ticket, Refuse] = field(default_factory=dict)
    """The requests that the shard has not answered, each with what makes a refusal of it."""
    failures: int = 0
    """How often in a row the shard failed or could not be loaded."""
    load_error: str = ""
    """Why the last attempt to load it failed, so that each reason is logged once."""
    active_since_ms: int = 0
    deferred: list[Callable[[ShardT, int], Effects]] = field(default_factory=list)
    """Events that came while it was loaded."""

    def take_append(self) -> list[LogRecord] | None:
        """Records to append as one batch, to be reported with `on_append_done`; None while one is under way."""
        return self.shard.pipeline.take_append()

    def on_append_done(self, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> Effects:
        """The append under way is committed, or has failed; then the state goes back to what is committed."""
        pipeline = self.shard.pipeline
        if error is ErrorCode.NONE:
            pipeline.on_committed(now_ms)
        else:
            writes = pipeline.take_failed()
            log.warning("an append failed: %s; %d writes are rolled back", error.name, len(writes))
            for write in writes:
                self.shard.rollback(write.snapshot)
            pipeline.fail(now_ms, writes, error)
        return pipeline.take_effects()

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`, if nothing else happens."""
        timer, waiting = self.shard.timers.deadline_ms, self.shard.pipeline.deadline_ms
        if timer is None or waiting is None:
            return waiting if timer is None else timer
        return min(timer, waiting)

    def on_timer(self, now_ms: int) -> Effects:
        """Let happen what is due."""
        shard = self.shard
        shard.pipeline.on_timer(now_ms)
        effects: Effects = shard.pipeline.take_effects()
        for key in shard.timers.pop_due(now_ms):
            effects += shard.on_timer(now_ms, key)
        return effects

    def on_pause(self, now_ms: int, pause_ms: int) -> Effects:
        """The process did not run for so long before `now_ms`: timers get the time back, and time to read requests."""
        self.shard.timers.put_off(pause_ms + UNREAD_MS)
        return self.shard.on_pause(now_ms, pause_ms)

    def on_unloaded(self, now_ms: int) -> Effects:
        """The partition is no longer led here: what waits for a commit is answered NOT_COORDINATOR."""
        effects: Effects = self.shard.on_unloaded(now_ms)
        pipeline = self.shard.pipeline
        pipeline.fail(now_ms, pipeline.take_failed(), ErrorCode.NOT_COORDINATOR)
        return effects + pipeline.take_effects()


class HostedShards(Generic[ShardT]):
    """The partitions that are led here."""

    def __init__(self, make_shard: Callable[[], ShardT]) -> None:
        self._make_shard = make_shard
        self._by_partition: dict[int, HostedShard[ShardT]] = {}

    def add(self, partition: int, leader_epoch: int) -> HostedShard[ShardT]:
        """The partition is led here from now on; it is to be loaded."""
        hosted = self._by_partition[partition] = HostedShard(partition, leader_epoch, self._make_shard())
        return hosted

    def empty(self, hosted: HostedShard[ShardT]) -> None:
        """The partition is to be loaded from the start again."""
        hosted.shard = self._make_shard()

    def remove(self, partition: int) -> HostedShard[ShardT] | None:
        """The partition is no longer led here."""
        return self._by_partition.pop(partition, None)

    def get(self, partition: int) -> HostedShard[ShardT] | None:
        """The partition's shard, if it is led here."""
        return self._by_partition.get(partition)

    def all(self) -> list[HostedShard[ShardT]]:
        """All that are led here, in whatever state."""
        return list(self._by_partition.values())

    def active(self, partition: int) -> HostedShard[ShardT]:
        """The partition's shard, ready to serve. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        hosted = self._by_partition.get(partition)
        if hosted is None or hosted.state is LoadState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if hosted.state is LoadState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def all_active(self) -> list[HostedShard[ShardT]]:
        """Every shard that serves. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them loads."""
        hosted = [one for one in self._by_partition.values() if one.state is not LoadState.FAILED]
        if any(one.state is LoadState.LOADING for one in hosted):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted
