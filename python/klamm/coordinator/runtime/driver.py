"""Runs shards in an asyncio loop: appends their records to the log and sends their responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from klamm.coordinator.runtime.counts import RuntimeCounts
from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.hosted_shard import Effects, HostedShard, HostedShards, LoadState, Refuse, ShardT
from klamm.coordinator.runtime.log import Batch, CoordinatorLog, RecordError
from klamm.coordinator.runtime.pipeline import Write
from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.driving.running_time import RunningTime
from klamm.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger("klamm.coordinator")

T = TypeVar("T")
P = ParamSpec("P")

FIRST_LOAD_PAUSE_S: Final = 0.1
LONGEST_LOAD_PAUSE_S: Final = 10.0
LONG_PAUSE_MS: Final = 1_000
"""A timer that fires this late means that the process did not run, not that the loop was busy."""
LONGEST_FAILED_PAUSE_S: Final = 300.0
"""The longest pause after a log could not be read. It is longer because each attempt reads the whole log."""
FAILURES_FORGOTTEN_MS: Final = 60_000
"""A shard that was active for this long is reloaded with the first pause again."""


def _refuse_effect(hosted: HostedShard[Any], effect: Any) -> None:
    raise TypeError(f"an effect without a handler: {effect!r}")


class CoordinatorRuntime(Generic[ShardT]):
    """Hosts the shards of the partitions of one internal topic that this node leads.

    Call all methods in the loop's thread. Shards receive the wall-clock time in ms since 1970.
    """

    def __init__(
        self,
        topic_log: CoordinatorLog,
        make_shard: Callable[[], ShardT],
        *,
        carry_out: Callable[[HostedShard[ShardT], Any], None] = _refuse_effect,
    ) -> None:
        """`carry_out` is called with each effect that is specific to the shard.

        An exception from it fails the shard.
        """
        self._log = topic_log
        self._carry_out = carry_out
        self._clock = LoopClock.of_sessions(since_1970=True)
        self._now_ms = self._clock.now_ms
        self._running_time = RunningTime(self._now_ms(), LONG_PAUSE_MS)
        self._timers: dict[int, DeadlineTimer] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._load_ended = asyncio.Event()
        self._touched: list[HostedShard[ShardT]] = []
        """Shards with an event since the last `_settle`."""
        self.shards: Final = HostedShards(make_shard)
        self.counts: Final = RuntimeCounts()

    def now_ms(self) -> int:
        """The time that shards receive."""
        return self._now_ms()

    # Leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node became leader of the partition: load it."""
        current = self.shards.get(partition)
        if current is not None:
            if current.leader_epoch >= leader_epoch:
                return
            self._remove(partition)
        self._add(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node lost the leadership of the partition, in `leader_epoch` if that is known."""
        current = self.shards.get(partition)
        if current is not None and (leader_epoch is None or leader_epoch > current.leader_epoch):
            self._remove(partition)

    def close(self) -> None:
        """Unload all partitions. Waiting requests are answered with NOT_COORDINATOR."""
        for hosted in self.shards.all():
            self._remove(hosted.partition)

    async def loaded(self) -> None:
        """Wait until each partition that this node leads is active or failed to load."""
        while any(one.state is LoadState.LOADING for one in self.shards.all()):
            await self.load_changed()

    async def load_changed(self) -> None:
        """Wait until a load succeeds, fails or is cancelled."""
        self._load_ended.clear()
        await self._load_ended.wait()

    def _add(self, partition: int, leader_epoch: int) -> HostedShard[ShardT]:
        hosted = self.shards.add(partition, leader_epoch)
        self._timers[partition] = DeadlineTimer(self._clock, partial(self._on_timer, hosted))
        self._loads[partition] = asyncio.get_running_loop().create_task(self._load(hosted))
        return hosted

    def _remove(self, partition: int) -> None:
        hosted = self.shards.remove(partition)
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()
        self._load_ended.set()
        if hosted is not None:
            self._unload(hosted)

    def _unload(self, hosted: HostedShard[ShardT]) -> None:
        """Answer the waiting requests: first those that the shard answers, then the others with NOT_COORDINATOR."""
        try:
            self._carry_out_all(hosted, hosted.on_unloaded(self._now_ms()))
        except Exception:  # a bug of the shard must not keep its requests unanswered
            log.exception("partition %d of %s failed while it was unloaded", hosted.partition, self._log.topic)
        for ticket, refuse in list(hosted.unanswered.items()):
            self._reply(hosted, Reply(ticket, refuse(ErrorCode.NOT_COORDINATOR)))

    # Loading

    async def _load(self, hosted: HostedShard[ShardT]) -> None:
        partition = hosted.partition
        while True:
            await self._pause(hosted)
            started_ms = self._now_ms()
            try:
                count = await self._replay_all(hosted)
                break
            except Exception as error:  # loading is repeated, as after a damaged record was removed
                self._on_load_failed(hosted, error)
        hosted.state, hosted.active_since_ms = LoadState.ACTIVE, self._now_ms()
        self.counts.loads += 1
        self.counts.load_time_ms += hosted.active_since_ms - started_ms
        self._load_ended.set()
        log.debug("partition %d: %d records loaded in %d ms", partition, count, hosted.active_since_ms - started_ms)
        self._feed(hosted, hosted.shard.on_loaded)
        if self.shards.get(partition) is hosted:
            deferred, hosted.deferred = hosted.deferred, []
            for event in deferred:
                self._feed_or_defer(partition, event)

    async def _pause(self, hosted: HostedShard[ShardT]) -> None:
        """Wait before a failed partition is reloaded, longer after each failure."""
        if not hosted.failures:
            return
        longest_s = LONGEST_LOAD_PAUSE_S if hosted.state is LoadState.LOADING else LONGEST_FAILED_PAUSE_S
        await asyncio.sleep(min(FIRST_LOAD_PAUSE_S * 2 ** min(hosted.failures - 1, 20), longest_s))
        self.shards.empty(hosted)

    async def _replay_all(self, hosted: HostedShard[ShardT]) -> int:
        await self._log.open(hosted.partition)
        replay, count = hosted.shard.replay, 0
        async for records in self._log.load(hosted.partition):
            for record in records:
                replay(record)
            count += len(records)
            await asyncio.sleep(0)
        return count

    def _on_load_failed(self, hosted: HostedShard[ShardT], error: Exception) -> None:
        hosted.failures += 1
        self.counts.load_failures += 1
        # A storage error may be temporary (too many open files), or the failed directory loses its leaderships.
        is_passing = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        # As in Kafka, a partition that cannot be read is not served: new records would build on an incomplete state.
        hosted.state = LoadState.LOADING if is_passing else LoadState.FAILED
        self._load_ended.set()
        if str(error) != hosted.load_error:
            hosted.load_error = str(error)
            is_known = isinstance(error, KafkaError | RecordError)
            text = "partition %d of %s cannot be loaded, and is tried again: %s"
            log.error(text, hosted.partition, self._log.topic, error, exc_info=None if is_known else error)

    def _fail(self, hosted: HostedShard[ShardT], error: Exception) -> None:
        """The shard's state may differ from its log: reload it, and refuse the waiting requests."""
        partition = hosted.partition
        if self.shards.get(partition) is not hosted:
            return
        self.counts.faults += 1
        text = "partition %d of %s failed and is reloaded: %r"
        log.error(text, partition, self._log.topic, error, exc_info=error)
        has_served = self._now_ms() - hosted.active_since_ms >= FAILURES_FORGOTTEN_MS
        self._remove(partition)
        again = self._add(partition, hosted.leader_epoch)
        again.failures = 1 if has_served else hosted.failures + 1
        again.deferred = list(hosted.deferred)

    # Events

    def submit(
        self,
        hosted: HostedShard[ShardT],
        ticket: Ticket,
        refuse: Refuse,
        event: Callable[Concatenate[int, Ticket, P], Effects],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Pass a request to the shard's method `event`.

        The ticket is called once with the response: the shard's, or `refuse` of an error code if the shard fails or is
        unloaded.
        """
        hosted.unanswered[ticket] = refuse
        try:
            effects = event(self._now_ms(), ticket, *args, **kwargs)
        except Exception as error:
            # A bug of the shard reloads it. Kafka answers an unexpected exception with the same code.
            self._reply(hosted, Reply(ticket, refuse(ErrorCode.UNKNOWN_SERVER_ERROR)))
            self._fail(hosted, error)
        else:
            self._touch(hosted)
            self._carry_out_all(hosted, effects)

    def feed(self, hosted: HostedShard[ShardT], event: Callable[[ShardT, int], Effects]) -> None:
        """Pass an event to an active shard; an inactive one does not need it."""
        if hosted.state is LoadState.ACTIVE and self.shards.get(hosted.partition) is hosted:
            self._feed(hosted, partial(event, hosted.shard))

    def feed_all(self, event: Callable[[ShardT, int], Effects]) -> None:
        """Pass an event to each shard.

        A shard that is loading, or that fails on the event, receives it after the load.
        """
        for hosted in self.shards.all():
            self._feed_or_defer(hosted.partition, event)

    def _feed_or_defer(self, partition: int, event: Callable[[ShardT, int], Effects]) -> None:
        hosted = self.shards.get(partition)
        if hosted is not None and hosted.state is LoadState.ACTIVE:
            self._feed(hosted, partial(event, hosted.shard))
        current = self.shards.get(partition)
        if current is not None and current.state is not LoadState.ACTIVE:
            current.deferred.append(event)

    def _feed(self, hosted: HostedShard[ShardT], event: Callable[[int], Effects]) -> None:
        """Pass an event to the shard. An exception fails only this shard."""
        try:
            effects = event(self._now_ms())
        except Exception as error:  # a bug of the shard reloads it and affects no other
            self._fail(hosted, error)
        else:
            self._touch(hosted)
            self._carry_out_all(hosted, effects)

    # Effects

    def _carry_out_all(self, hosted: HostedShard[ShardT], effects: Effects) -> None:
        for effect in effects:
            if type(effect) is Reply:
                self._reply(hosted, effect)
                continue
            try:
                self._carry_out(hosted, effect)
            except Exception as error:  # a bug of the shard reloads it and affects no other
                self._fail(hosted, error)
                return

    def _reply(self, hosted: HostedShard[ShardT], reply: Reply) -> None:
        ticket = reply.ticket
        if hosted.unanswered.pop(ticket, None) is None:
            return
        try:
            ticket(reply.response)
        except Exception:  # a failed delivery must not fail the shard
            log.exception("a response of the coordinator of %s could not be delivered", self._log.topic)

    def _touch(self, hosted: HostedShard[ShardT]) -> None:
        """Schedule one append for all shards that have events in this turn of the loop."""
        if not hosted.is_touched:
            hosted.is_touched = True
            if not self._touched:
                asyncio.get_running_loop().call_soon(self._settle)
            self._touched.append(hosted)

    def _settle(self) -> None:
        """Append the records of this turn's events, and arm the timers."""
        touched, self._touched = self._touched, []
        batches: dict[HostedShard[ShardT], list[Batch]] = {}
        for hosted in touched:
            hosted.is_touched = False
            if self.shards.get(hosted.partition) is not hosted:
                continue  # unloading has answered its requests
            try:
                taken = [self._batch(hosted, write) for write in iter(hosted.take_append, None)]
                self._timers[hosted.partition].arm(hosted.deadline_ms)
            except Exception as error:  # a bug of the shard reloads it and affects no other
                self._fail(hosted, error)
                continue
            if taken:
                batches[hosted] = taken
        if batches:
            self._append(batches)

    def _batch(self, hosted: HostedShard[ShardT], write: Write[Any]) -> Batch:
        self.counts.appended_records += 1 if write.marker else len(write.records)
        done = partial(self._on_append_done, hosted, write)
        return Batch(hosted.partition, hosted.series, write.records, done, write.producer, write.marker)

    def _append(self, taken: dict[HostedShard[ShardT], list[Batch]]) -> None:
        batches = [batch for each in taken.values() for batch in each]
        self.counts.appends += len(batches)
        try:
            self._log.append(batches, self._now_ms())
        except Exception as error:  # any of the batches may be in the log
            for hosted in taken:
                self._fail(hosted, error)

    def _on_append_done(self, hosted: HostedShard[ShardT], write: Write[Any], error: ErrorCode | None) -> None:
        if error is not ErrorCode.NONE and not write.is_rolled_back:
            self.counts.append_failures += 1
        if self.shards.get(hosted.partition) is not hosted:
            return
        if error is None:
            self._fail(hosted, RuntimeError("the outcome of an append is unknown"))
        else:
            self._feed(hosted, partial(hosted.on_append_done, write=write, error=error))

    # Time

    def _on_timer(self, hosted: HostedShard[ShardT], deadline_ms: int) -> None:
        self._running_time.on_turn(self._now_ms(), deadline_ms)
        self._extend_by_pause()
        if self.shards.get(hosted.partition) is hosted:
            self._feed(hosted, hosted.on_timer)

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms` and received no requests.

        A pause that is already known has no effect.
        """
        self._running_time.on_pause(self._now_ms(), pause_ms)
        self._extend_by_pause()

    def _extend_by_pause(self) -> None:
        pause_ms = self._running_time.take_pause()
        if not pause_ms:
            return
        log.warning("the process did not run for %d ms; timers of %s are extended", pause_ms, self._log.topic)
        for hosted in self.shards.all():
            if hosted.state is LoadState.ACTIVE:
                self._feed(hosted, partial(hosted.on_pause, pause_ms=pause_ms))


def into(future: asyncio.Future[T]) -> Callable[[T], None]:
    """A ticket that sets the future's result, unless the future was cancelled."""

    def take(response: T) -> None:
        if not future.done():
            future.set_result(response)

    return take
