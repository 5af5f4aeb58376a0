"""The group coordinator in an asyncio loop: it carries shards' effects to the log and to those who asked."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from klamm.coordinator.commits import CommitAnswer, fetch_error
from klamm.coordinator.config import GroupConfig
from klamm.coordinator.context import log
from klamm.coordinator.effects import Reply
from klamm.coordinator.records import SHORT, LogRecord, decode
from klamm.coordinator.service import GroupRegistry, LoadState, Residence
from klamm.coordinator.shard import NO_PRODUCER_ID, Shard
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.group_messages import (
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
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicCommits,
)

T = TypeVar("T")

LOAD_STEP_RECORDS: Final = 200
"""Records replayed before others get a turn: about 2 ms."""
COMMIT_MARKER: Final = 1
FIRST_LOAD_PAUSE_S: Final = 0.1
LONGEST_LOAD_PAUSE_S: Final = 10.0


class LoadedRecord(NamedTuple):
    """A record of the log, or a control record, whose key says which; `producer_id` is -1 outside transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    is_control: bool = False


class Batch(NamedTuple):
    """Records to append as one batch."""

    partition: int
    records: Sequence[LogRecord]
    done: Callable[[ErrorCode], None]
    """Called once, at once or later: NONE when the high watermark is behind the batch, else why it never will be."""


class GroupLog(Protocol):
    """The log of `__consumer_offsets`."""

    def append(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Append batches, each to another partition. Does not block."""
        ...

    async def open(self, partition: int) -> None:
        """Make the partition ready to be loaded, which may take a recovery. Raises KafkaError."""
        ...

    def load(self, partition: int) -> Iterator[LoadedRecord]:
        """All records from log start to log end, committed or not. Raises KafkaError."""
        ...


def anchored_clock() -> Callable[[], int]:
    """Milliseconds since 1970, of which a set clock moves none: the time at the start, and what has passed since."""
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
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._touched: list[Residence] = []
        """Those that an event has reached since the last `_settle`."""

    @property
    def registry(self) -> GroupRegistry:
        """The partitions that are led here."""
        return self._registry

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to."""
        return self._registry.partition_for(group_id)

    # Leadership.

    def use_partition_count(self, partition_count: int) -> None:
        """The offsets topic has so many partitions. As in Kafka the count stands from the first election on:

        a partition that is added later gets no groups before a restart, since the others' would change places.
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
        residence = self._registry.arrive(partition, leader_epoch)
        task = asyncio.get_running_loop().create_task(self._load(residence))
        self._loads[partition] = task
        task.add_done_callback(lambda done: self._forget_load(partition, done))

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """The partition is no longer led here, since `leader_epoch` if that is known."""
        current = self._registry.get(partition)
        if current is not None and (leader_epoch is None or leader_epoch > current.leader_epoch):
            self._depart(partition)

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Topics (name and id) are gone: their offsets go too."""
        deleted = list(topics)
        for residence in self._registry.residences():
            if residence.state is LoadState.ACTIVE:
                self._run(residence, residence.shard.on_topics_deleted(deleted))

    async def loaded(self) -> None:
        """Wait for the loads that are under way."""
        while self._loads:
            await asyncio.wait(self._loads.values())

    def close(self) -> None:
        """Leave all partitions; what waits is answered NOT_COORDINATOR."""
        for residence in self._registry.residences():
            self._depart(residence.partition)

    def _forget_load(self, partition: int, task: asyncio.Task[None]) -> None:
        if self._loads.get(partition) is task:
            del self._loads[partition]

    def _depart(self, partition: int) -> None:
        residence = self._registry.depart(partition)
        load = self._loads.get(partition)
        if load is not None:
            load.cancel()
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer[1].cancel()
        if residence is not None:
            _answer(residence.shard.on_unloaded(self._now_ms()))

    async def _load(self, residence: Residence) -> None:
        partition, started_ms, pause_s = residence.partition, self._now_ms(), FIRST_LOAD_PAUSE_S
        while True:
            try:
                count = await self._replay_all(residence)
                break
            except Exception as error:
                is_passing = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
                # Kafka's way: what cannot be read must not be served, lest a later write builds on half of it.
                log.error("partition %d of the group log cannot be loaded: %s", partition, error)
                if not is_passing:
                    residence.state = LoadState.FAILED
                    return
            # Descriptors may come free, and a directory that has failed takes the leadership away.
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_LOAD_PAUSE_S)
            self._registry.empty(residence)
        residence.state = LoadState.ACTIVE
        log.debug("partition %d: %d records loaded in %d ms", partition, count, self._now_ms() - started_ms)
        self._run(residence, residence.shard.on_loaded(self._now_ms()))

    async def _replay_all(self, residence: Residence) -> int:
        await self._log.open(residence.partition)
        count = 0
        for record in self._log.load(residence.partition):
            _replay(residence.shard, record)
            count += 1
            if count % LOAD_STEP_RECORDS == 0:
                await asyncio.sleep(0)
        return count

    # Effects.

    def _run(self, residence: Residence, replies: list[Reply]) -> None:
        """Give answers; what is to be appended follows when the loop has run all that is due, and goes together."""
        if not residence.is_touched:
            residence.is_touched = True
            if not self._touched:
                asyncio.get_running_loop().call_soon(self._settle)
            self._touched.append(residence)
        _answer(replies)

    def _settle(self) -> None:
        """Append what the events of this turn have left, and look at the time."""
        touched, self._touched = self._touched, []
        batches = []
        for residence in touched:
            residence.is_touched = False
            if self._registry.get(residence.partition) is not residence:
                continue  # who waited there was told when it went
            records = residence.shard.take_append()
            if records is not None:
                batches.append(Batch(residence.partition, records, partial(self._append_done, residence)))
            self._set_timer(residence)
        if batches:
            self._log.append(batches, self._now_ms())

    def _append_done(self, residence: Residence, error: ErrorCode) -> None:
        if self._registry.get(residence.partition) is residence:
            self._run(residence, residence.shard.on_append_done(self._now_ms(), error))

    def _set_timer(self, residence: Residence) -> None:
        deadline_ms = residence.shard.deadline_ms
        current = self._timers.get(residence.partition)
        if deadline_ms is None or (current is not None and current[0] <= deadline_ms):
            return  # one that fires too early only looks and sets itself anew
        if current is not None:
            current[1].cancel()
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        handle = asyncio.get_running_loop().call_later(delay_s, self._on_timer, residence)
        self._timers[residence.partition] = (deadline_ms, handle)

    def _on_timer(self, residence: Residence) -> None:
        if self._registry.get(residence.partition) is residence:
            del self._timers[residence.partition]
            self._run(residence, residence.shard.on_timer(self._now_ms()))

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
        self._run(residence, residence.shard.on_join(self._now_ms(), into(asked), caller, request))
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
        self._run(residence, residence.shard.on_sync(self._now_ms(), into(asked), request))
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
        self._run(residence, residence.shard.on_heartbeat(self._now_ms(), answer, request))

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup (13)."""
        if not request.group_id:
            return LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return LeaveGroupResponse(error.code)
        asked: asyncio.Future[LeaveGroupResponse] = asyncio.get_running_loop().create_future()
        self._run(residence, residence.shard.on_leave(self._now_ms(), into(asked), request))
        return await asked

    def offset_commit(
        self,
        api_version: int,
        request: OffsetCommitRequest,
        topics: Sequence[TopicCommits],
        answer: Callable[[CommitAnswer], None],
    ) -> None:
        """OffsetCommit (8) of `topics`, which exist."""
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            answer(int(error.code))
            return
        self._run(residence, residence.shard.on_offset_commit(self._now_ms(), answer, api_version, request, topics))

    def offset_fetch(
        self, request: FetchGroup, answer: Callable[[FetchedGroup], None], *, require_stable: bool
    ) -> None:
        """OffsetFetch (9), one group of it."""
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            answer(fetch_error(request, error.code))
            return
        replies = residence.shard.on_offset_fetch(self._now_ms(), answer, request, require_stable=require_stable)
        self._run(residence, replies)

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete (47)."""
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        try:
            residence = self._residence_of(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error.code)
        asked: asyncio.Future[OffsetDeleteResponse] = asyncio.get_running_loop().create_future()
        self._run(residence, residence.shard.on_offset_delete(self._now_ms(), into(asked), request))
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
        try:
            residence = self._registry.active(partition)
        except KafkaError as error:
            return tuple(DeletedGroup(group_id, error.code) for group_id in group_ids)
        asked: asyncio.Future[tuple[DeletedGroup, ...]] = asyncio.get_running_loop().create_future()
        self._run(residence, residence.shard.on_delete_groups(self._now_ms(), into(asked), group_ids))
        return await asked

    def _residence_of(self, group_id: str) -> Residence:
        return self._registry.active(self._registry.partition_for(group_id))


def _answer(replies: list[Reply]) -> None:
    for ticket, response in replies:
        ticket(response)


def into(asked: asyncio.Future[T]) -> Callable[[T], None]:
    """What takes an answer to be the future's result, unless nobody waits for that any more."""

    def take(response: T) -> None:
        if not asked.done():
            asked.set_result(response)

    return take


def _replay(shard: Shard, record: LoadedRecord) -> None:
    if record.is_control:
        if len(record.key) >= 4:
            (marker,) = SHORT.unpack_from(record.key, 2)
            shard.replay_transaction_end(record.producer_id, marker == COMMIT_MARKER)
    else:
        shard.replay(record.offset, record.producer_id, decode(record.key, record.value))
