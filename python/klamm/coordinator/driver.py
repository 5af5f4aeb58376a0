"""The group coordinator in an asyncio loop: it carries the effects of shards to the log and to the requests."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from klamm._engine import CommitRequest
from klamm.coordinator.commits import CommitAnswer, fetch_error
from klamm.coordinator.config import GroupConfig
from klamm.coordinator.context import log
from klamm.coordinator.effects import Reply, Ticket
from klamm.coordinator.group_log import Batch, GroupLog
from klamm.coordinator.loading import replay
from klamm.coordinator.records import RecordError
from klamm.coordinator.service import GroupRegistry, LoadState, Refuse, Residence
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import (
    Caller,
    DeletedGroup,
    DescribedGroup,
    FetchedGroup,
    FetchGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

T = TypeVar("T")
P = ParamSpec("P")

LOAD_STEP_RECORDS: Final = 200
"""Records replayed before others get a turn: about 2 ms."""
FIRST_LOAD_PAUSE_S: Final = 0.1
LONGEST_LOAD_PAUSE_S: Final = 10.0
LONG_PAUSE_MS: Final = 1_000
"""A timer this late means that the process did not run, not that the loop was busy."""
LONGEST_FAILED_PAUSE_S: Final = 300.0
"""The same for a log that cannot be read: each attempt reads all of it."""
FAILURES_FORGOTTEN_MS: Final = 60_000
"""A shard that has served for so long is loaded again without a longer pause."""


def anchored_clock() -> Callable[[], int]:
    """Milliseconds since 1970 at the start, plus the time since then: the clock may be changed."""
    anchor_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (anchor_ns + time.monotonic_ns()) // 1_000_000


class GroupCoordinator:
    """Answers the group APIs for the partitions of `__consumer_offsets` that are led here.

    All methods are called in the loop's thread. The answers of those that give one per request never raise KafkaError:
    refusals are in the answer, as Kafka puts them there. What clients ask all the time takes a callback for its answer,
    which may be called at once: a task and its futures would cost more than the answer.
    """

    def __init__(
        self,
        config: GroupConfig,
        groups_log: GroupLog,
        partition_count: int,
        *,
        now_ms: Callable[[], int] | None = None,
        draw_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._registry = GroupRegistry(config, partition_count, draw_uuid)
        self._log = groups_log
        self._now_ms = now_ms or anchored_clock()
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._ran_ms = 0
        """When the last pause ended: timers that were due before are late because of it."""
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._load_ended = asyncio.Event()
        self._touched: list[Residence] = []
        """Residences with an event since the last `_settle`."""

    @property
    def registry(self) -> GroupRegistry:
        """The partitions that are led here."""
        return self._registry

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to."""
        return self._registry.partition_for(group_id)

    # Leadership.

    def use_partition_count(self, partition_count: int) -> None:
        """The partition count of the offsets topic. As in Kafka it is fixed from the first election on:

        a partition that is added later gets no groups before a restart, because other groups would change partitions.
        """
        if not self._registry.residences():
            self._registry.partition_count = partition_count

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """The partition is led here from now on: load it."""
        current = self._registry.get(partition)
        if current is not None:
            if current.leader_epoch >= leader_epoch:
                return
            self._depart(partition)
        self._arrive(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """The partition is no longer led here, since `leader_epoch` if that is known."""
        current = self._registry.get(partition)
        if current is not None and (leader_epoch is None or leader_epoch > current.leader_epoch):
            self._depart(partition)

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Topics (name and id) were deleted: delete their offsets."""
        deleted = list(topics)
        for residence in self._registry.residences():
            self._forget_topics(residence, deleted)

    def _forget_topics(self, residence: Residence, deleted: list[tuple[str, bytes]]) -> None:
        if residence.state is LoadState.ACTIVE:
            self._feed(residence, lambda _: residence.shard.on_topics_deleted(deleted))
        current = self._registry.get(residence.partition)
        if current is not None and current.state is not LoadState.ACTIVE:
            current.deleted_topics += deleted

    async def loaded(self) -> None:
        """Wait until each partition that is led here serves, or has failed to load."""
        while any(one.state is LoadState.LOADING for one in self._registry.residences()):
            await self.load_changed()

    async def load_changed(self) -> None:
        """Wait until a load has ended, well or not, or its partition is gone."""
        self._load_ended.clear()
        await self._load_ended.wait()

    def close(self) -> None:
        """Leave all partitions; waiting requests are answered NOT_COORDINATOR."""
        for residence in self._registry.residences():
            self._depart(residence.partition)

    def _arrive(
        self, partition: int, leader_epoch: int, failures: int = 0, deleted_topics: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        residence = self._registry.arrive(partition, leader_epoch)
        residence.failures, residence.deleted_topics = failures, list(deleted_topics)
        self._loads[partition] = asyncio.get_running_loop().create_task(self._load(residence))

    def _depart(self, partition: int) -> None:
        residence = self._registry.depart(partition)
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer[1].cancel()
        self._load_ended.set()
        if residence is not None:
            self._unload(residence)

    def _unload(self, residence: Residence) -> None:
        """Answer waiting requests: the shard chooses the answers, and requests that it leaves out are refused."""
        try:
            self._answer(residence, residence.shard.on_unloaded(self._now_ms()))
        except Exception:
            log.exception("partition %d of the group log failed while it was unloaded", residence.partition)
        for ticket, refuse in list(residence.asked.items()):
            self._answer(residence, [Reply(ticket, refuse(ErrorCode.NOT_COORDINATOR))])

    async def _load(self, residence: Residence) -> None:
        partition = residence.partition
        while True:
            await self._pause(residence)
            started_ms = self._now_ms()
            try:
                count = await self._replay_all(residence)
                break
            except Exception as error:
                self._on_load_failed(residence, error)
        residence.state, residence.active_since_ms = LoadState.ACTIVE, self._now_ms()
        self._load_ended.set()
        log.debug("partition %d: %d records loaded in %d ms", partition, count, self._now_ms() - started_ms)
        self._feed(residence, residence.shard.on_loaded)
        deleted, residence.deleted_topics = residence.deleted_topics, []
        if deleted and self._registry.get(partition) is residence:
            self._forget_topics(residence, deleted)

    async def _pause(self, residence: Residence) -> None:
        """Wait before a failed partition is loaded again, longer after each failure."""
        if not residence.failures:
            return
        longest_s = LONGEST_LOAD_PAUSE_S if residence.state is LoadState.LOADING else LONGEST_FAILED_PAUSE_S
        await asyncio.sleep(min(FIRST_LOAD_PAUSE_S * 2 ** min(residence.failures - 1, 20), longest_s))
        self._registry.empty(residence)

    def _on_load_failed(self, residence: Residence, error: Exception) -> None:
        residence.failures += 1
        # Descriptors may come free, and a directory that has failed takes the leadership away.
        is_passing = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        # As in Kafka: a partition that cannot be read is not served, because later writes would build on a part of it.
        residence.state = LoadState.LOADING if is_passing else LoadState.FAILED
        self._load_ended.set()
        if str(error) != residence.load_error:
            residence.load_error = str(error)
            is_known = isinstance(error, KafkaError | RecordError)
            text = "partition %d of the group log cannot be loaded, and is tried again: %s"
            log.error(text, residence.partition, error, exc_info=None if is_known else error)

    def _fail(self, residence: Residence, error: Exception) -> None:
        """The shard's state may differ from its log: load it again, and refuse waiting requests."""
        partition = residence.partition
        if self._registry.get(partition) is not residence:
            return
        log.error("partition %d of the group log failed, and is loaded again: %r", partition, error, exc_info=error)
        has_served = self._now_ms() - residence.active_since_ms >= FAILURES_FORGOTTEN_MS
        self._depart(partition)
        failures = 1 if has_served else residence.failures + 1
        self._arrive(partition, residence.leader_epoch, failures, residence.deleted_topics)

    async def _replay_all(self, residence: Residence) -> int:
        await self._log.open(residence.partition)
        count = 0
        for record in self._log.load(residence.partition):
            replay(residence.shard, record)
            count += 1
            if count % LOAD_STEP_RECORDS == 0:
                await asyncio.sleep(0)
        return count

    # Effects.

    def _ask(
        self,
        residence: Residence,
        ticket: Ticket,
        refuse: Refuse,
        event: Callable[Concatenate[int, Ticket, P], list[Reply]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Give the shard a request. It is answered once: by the shard, or by `refuse` if the shard fails."""
        residence.asked[ticket] = refuse
        try:
            replies = event(self._now_ms(), ticket, *args, **kwargs)
        except Exception as error:
            # As Kafka answers an unexpected exception.
            self._answer(residence, [Reply(ticket, refuse(ErrorCode.UNKNOWN_SERVER_ERROR))])
            self._fail(residence, error)
        else:
            self._touch(residence)
            self._answer(residence, replies)

    def _feed(self, residence: Residence, event: Callable[[int], list[Reply]]) -> None:
        """Give the shard an event. An exception ends this shard's state only."""
        try:
            replies = event(self._now_ms())
        except Exception as error:
            self._fail(residence, error)
        else:
            self._touch(residence)
            self._answer(residence, replies)

    def _answer(self, residence: Residence, replies: list[Reply]) -> None:
        asked = residence.asked
        for ticket, response in replies:
            if asked.pop(ticket, None) is None:
                continue
            try:
                ticket(response)
            except Exception:
                log.exception("an answer of the group coordinator could not be given")

    def _touch(self, residence: Residence) -> None:
        """Append once the loop has run all that is due, in one call for all shards."""
        if not residence.is_touched:
            residence.is_touched = True
            if not self._touched:
                asyncio.get_running_loop().call_soon(self._settle)
            self._touched.append(residence)

    def _settle(self) -> None:
        """Append the records of this turn's events, and set the timers."""
        touched, self._touched = self._touched, []
        batches: dict[Residence, Batch] = {}
        for residence in touched:
            residence.is_touched = False
            if self._registry.get(residence.partition) is not residence:
                continue  # its requests were answered when it was unloaded
            try:
                records = residence.shard.take_append()
                self._set_timer(residence)
            except Exception as error:
                self._fail(residence, error)
                continue
            if records is not None:
                batches[residence] = Batch(residence.partition, records, partial(self._append_done, residence))
        if batches:
            try:
                self._log.append(list(batches.values()), self._now_ms())
            except Exception as error:  # any of them may be in the log
                for residence in batches:
                    self._fail(residence, error)

    def _append_done(self, residence: Residence, error: ErrorCode | None) -> None:
        if self._registry.get(residence.partition) is not residence:
            return
        if error is None:
            self._fail(residence, RuntimeError("what became of an append is not known"))
        else:
            self._feed(residence, lambda now_ms: residence.shard.on_append_done(now_ms, error))

    def _set_timer(self, residence: Residence) -> None:
        deadline_ms = residence.shard.deadline_ms
        current = self._timers.get(residence.partition)
        if deadline_ms is None or (current is not None and current[0] <= deadline_ms):
            return  # a timer that fires too early is set again
        if current is not None:
            current[1].cancel()
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        handle = asyncio.get_running_loop().call_later(delay_s, self._on_timer, residence)
        self._timers[residence.partition] = (deadline_ms, handle)

    def _on_timer(self, residence: Residence) -> None:
        if self._registry.get(residence.partition) is residence:
            deadline_ms, _ = self._timers.pop(residence.partition)
            self._look_for_pause(deadline_ms)
            self._feed(residence, residence.shard.on_timer)

    def _look_for_pause(self, deadline_ms: int) -> None:
        """Detect from a very late timer that the process did not run."""
        pause_ms = self._now_ms() - max(deadline_ms, self._ran_ms)
        if pause_ms >= LONG_PAUSE_MS:
            self.on_pause(pause_ms)

    def on_pause(self, pause_ms: int) -> None:
        """The process did not run for `pause_ms`, and received no heartbeats. A pause that is known has no effect."""
        now_ms = self._now_ms()
        if now_ms - pause_ms < self._ran_ms:
            return
        self._ran_ms = now_ms
        log.warning("the group coordinator did not run for %d ms; the sessions of members start afresh", pause_ms)
        for residence in self._registry.residences():
            if residence.state is LoadState.ACTIVE:
                self._feed(residence, partial(residence.shard.on_pause, pause_ms=pause_ms))

    # Requests.

    async def join_group(self, caller: Caller, request: JoinGroupRequest) -> JoinGroupResponse:
        """JoinGroup (11)."""
        config = self._registry.config
        if not request.group_id:
            return JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return JoinGroupResponse(error.code)
        asked: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        refuse = partial(JoinGroupResponse, member_id=request.member_id)
        self._ask(residence, into(asked), refuse, residence.shard.on_join, caller, request)
        return await asked

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup (14)."""
        if not request.group_id:
            return SyncGroupResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return SyncGroupResponse(error.code)
        asked: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        self._ask(residence, into(asked), SyncGroupResponse, residence.shard.on_sync, request)
        return await asked

    def heartbeat(self, request: HeartbeatRequest, answer: Callable[[ErrorCode], None]) -> None:
        """Heartbeat (12); while the group loads it is well."""
        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
            return
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer(ErrorCode.NONE if is_loading else error.code)
            return
        self._ask(residence, answer, ErrorCode, residence.shard.on_heartbeat, request)

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup (13)."""
        if not request.group_id:
            return LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return LeaveGroupResponse(error.code)
        asked: asyncio.Future[LeaveGroupResponse] = asyncio.get_running_loop().create_future()
        self._ask(residence, into(asked), LeaveGroupResponse, residence.shard.on_leave, request)
        return await asked

    def offset_commit(self, request: CommitRequest, answer: Callable[[CommitAnswer], None]) -> None:
        """OffsetCommit (8) of the partitions that exist."""
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            answer(int(error.code))
            return
        self._ask(residence, answer, int, residence.shard.on_offset_commit, request)

    def offset_fetch(
        self, request: FetchGroup, answer: Callable[[FetchedGroup], None], *, require_stable: bool
    ) -> None:
        """OffsetFetch (9), one group of it."""
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            answer(fetch_error(request, error.code))
            return
        refuse, fetch = partial(fetch_error, request), residence.shard.on_offset_fetch
        self._ask(residence, answer, refuse, fetch, request, require_stable=require_stable)

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete (47)."""
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error.code)
        asked: asyncio.Future[OffsetDeleteResponse] = asyncio.get_running_loop().create_future()
        self._ask(residence, into(asked), OffsetDeleteResponse, residence.shard.on_offset_delete, request)
        return await asked

    def describe_groups(self, api_version: int, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """DescribeGroups (15)."""
        described = []
        for group_id in group_ids:
            try:
                described.append(self._residence_of(group_id).shard.describe(api_version, group_id))
            except KafkaError as error:
                described.append(DescribedGroup(group_id, error.code))
        return described

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups (16)."""
        try:
            residences = self._registry.all_active()
        except KafkaError as error:
            return ListGroupsResponse(error.code)
        groups = [group for residence in residences for group in residence.shard.list_groups(request)]
        return ListGroupsResponse(ErrorCode.NONE, tuple(groups))

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletedGroup]:
        """DeleteGroups (42)."""
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        work = (self._delete_groups(partition, tuple(ids)) for partition, ids in by_partition.items())
        return [deleted for results in await asyncio.gather(*work) for deleted in results]

    async def _delete_groups(self, partition: int, group_ids: tuple[str, ...]) -> tuple[DeletedGroup, ...]:
        def refuse(code: ErrorCode) -> tuple[DeletedGroup, ...]:
            return tuple(DeletedGroup(group_id, code) for group_id in group_ids)

        try:
            residence = self._registry.active(partition)
        except KafkaError as error:
            return refuse(error.code)
        asked: asyncio.Future[tuple[DeletedGroup, ...]] = asyncio.get_running_loop().create_future()
        self._ask(residence, into(asked), refuse, residence.shard.on_delete_groups, group_ids)
        return await asked

    def _residence_of(self, group_id: str) -> Residence:
        return self._registry.active_for(group_id)


def into(asked: asyncio.Future[T]) -> Callable[[T], None]:
    """A callback that sets the future's result, unless the future was cancelled."""

    def take(response: T) -> None:
        if not asked.done():
            asked.set_result(response)

    return take
