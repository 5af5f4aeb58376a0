"""The kinds of shards that the conformance tests run: groups, and counters, a minimal shard."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from tests.unit.coordinator.memory_log import MemoryLog

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.commits import CommitAnswer
from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.driver import GroupCoordinator
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.runtime.append_errors import coordinator_error
from klamm.coordinator.runtime.driver import CoordinatorRuntime, into
from klamm.coordinator.runtime.effects import Reply, Ticket
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import LoadedRecord, RecordError
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    Caller,
    FetchedGroup,
    FetchGroup,
    JoinGroupRequest,
    JoinProtocol,
)
from klamm.protocol.value import Value

T = TypeVar("T")
U = TypeVar("U")

COMMIT_TIMEOUT_MS = 5_000
BATCH_BYTES_MAX = 2_000
PARTITIONS = 2

Read = tuple[ErrorCode, int]
"""The error and the value; 0 if nothing was ever written."""


class Subject(ABC):
    """Shards of one kind in a runtime with all partitions. A partition has a value, and can set a timer."""

    shard_class: ClassVar[type]
    request: ClassVar[str]
    """The shard's method that writes."""

    runtime: CoordinatorRuntime[Any]

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    @abstractmethod
    def write(self, value: int, partition: int = 0, *, padding: int = 0) -> asyncio.Future[ErrorCode]:
        """Write a value, with that many more bytes."""

    @abstractmethod
    def read(self, partition: int = 0, *, newest: bool = False) -> asyncio.Future[Read]:
        """Read the committed value; or wait until the newest value is committed, and read that."""

    @abstractmethod
    def set_timer(self, after_ms: int, partition: int = 0) -> None:
        """Set the partition's timer, which writes a record when it fires."""

    @abstractmethod
    def has_fired(self, partition: int = 0) -> bool:
        """Whether the timer has fired."""

    @abstractmethod
    def spoil(self, partition: int = 0) -> None:
        """Add an unreadable record to the log."""

    async def started(self) -> None:
        for partition in range(PARTITIONS):
            self.runtime.on_elected(partition, 1)
        await self.runtime.loaded()

    async def value(self, partition: int = 0) -> int:
        """The committed value."""
        error, value = await self.read(partition)
        assert error is ErrorCode.NONE
        return value


class Rang(Value):
    """The counter's own effect: its timer has fired."""

    count: int


class CounterShard:
    """One number per partition. The snapshot is a copy of it."""

    def __init__(self) -> None:
        self.count = 0
        self.pipeline: Pipeline[int, Rang] = Pipeline(COMMIT_TIMEOUT_MS, BATCH_BYTES_MAX, lambda: self.count)
        self.timers: Timers[str] = Timers()

    def replay(self, record: LoadedRecord) -> None:
        if record.value is None or not record.value[:8].strip().isdigit():
            raise RecordError(f"not a number: {record.value!r}")
        self.count = int(record.value[:8])

    def rollback(self, snapshot: int) -> None:
        self.count = snapshot

    def on_loaded(self, now_ms: int) -> list[Reply | Rang]:
        return self.pipeline.take_effects()

    def on_unloaded(self, now_ms: int) -> list[Reply | Rang]:
        return self.pipeline.take_effects()

    def on_timer(self, now_ms: int, key: str) -> list[Reply | Rang]:
        self._write(self.count + 1)
        self.pipeline.add(Rang(self.count))
        return self.pipeline.take_effects()

    def on_pause(self, now_ms: int, pause_ms: int) -> list[Reply | Rang]:
        return self.pipeline.take_effects()

    def on_set(self, now_ms: int, ticket: Ticket, count: int, padding: int = 0) -> list[Reply | Rang]:
        if self._write(count, padding):
            self.pipeline.reply_when_committed(now_ms, ticket, ErrorCode.NONE, None, lambda _, error: refused(error))
        else:
            self.pipeline.reply(ticket, coordinator_error(ErrorCode.MESSAGE_TOO_LARGE))
        return self.pipeline.take_effects()

    def _write(self, count: int, padding: int = 0) -> bool:
        snapshot = self.pipeline.write([(b"count", b"%8d" % count + bytes(padding))])
        if snapshot is None:
            return False
        self.count = count
        return True

    def on_get(self, now_ms: int, ticket: Ticket, *, newest: bool) -> list[Reply | Rang]:
        if newest:
            answer = (ErrorCode.NONE, self.count)
            self.pipeline.reply_when_committed(now_ms, ticket, answer, None, lambda _, error: (refused(error), 0))
        else:
            committed = next(iter(self.pipeline.snapshots()), self.count)
            self.pipeline.reply(ticket, (ErrorCode.NONE, committed))
        return self.pipeline.take_effects()

    def on_alarm(self, now_ms: int, ticket: Ticket, after_ms: int) -> list[Reply | Rang]:
        self.timers.schedule("alarm", now_ms + after_ms)
        self.pipeline.reply(ticket, ErrorCode.NONE)
        return self.pipeline.take_effects()


def refused(error: ErrorCode) -> ErrorCode:
    return coordinator_error(error)


class Counters(Subject):
    """Counters: without group logic, and with the log of another topic."""

    shard_class = CounterShard
    request = "on_set"

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.rang: list[tuple[int, Rang]] = []
        self.runtime: CoordinatorRuntime[CounterShard] = CoordinatorRuntime(
            log, CounterShard, carry_out=lambda hosted, effect: self.rang.append((hosted.partition, effect))
        )

    def _hosted(self, partition: int) -> HostedShard[CounterShard]:
        return self.runtime.shards.active(partition)

    def write(self, value: int, partition: int = 0, *, padding: int = 0) -> asyncio.Future[ErrorCode]:
        asked: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        hosted = self._hosted(partition)
        self.runtime.submit(hosted, into(asked), lambda error: error, hosted.shard.on_set, value, padding)
        return asked

    def read(self, partition: int = 0, *, newest: bool = False) -> asyncio.Future[Read]:
        asked: asyncio.Future[Read] = asyncio.get_running_loop().create_future()
        hosted = self._hosted(partition)
        self.runtime.submit(hosted, into(asked), lambda error: (error, 0), hosted.shard.on_get, newest=newest)
        return asked

    def set_timer(self, after_ms: int, partition: int = 0) -> None:
        asked: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        hosted = self._hosted(partition)
        self.runtime.submit(hosted, into(asked), lambda error: error, hosted.shard.on_alarm, after_ms)

    def has_fired(self, partition: int = 0) -> bool:
        return partition in [where for where, _ in self.rang]

    def spoil(self, partition: int = 0) -> None:
        self.log.partitions.setdefault(partition, []).append((b"count", b"many"))


class Groups(Subject):
    """Groups: the value is a committed offset, and the timer is the session of a group's only member."""

    shard_class = GroupShard
    request = "on_offset_commit"

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        config = GroupConfig(
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            offsets_commit_timeout_ms=COMMIT_TIMEOUT_MS,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
        self.coordinator = GroupCoordinator(config, log, PARTITIONS)
        self.runtime = self.coordinator.runtime

    def _group(self, kind: str, partition: int) -> str:
        names = (f"{kind}{at}" for at in range(100))
        return next(name for name in names if self.coordinator.partition_for(name) == partition)

    def write(self, value: int, partition: int = 0, *, padding: int = 0) -> asyncio.Future[ErrorCode]:
        asked: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        topics = [("t", ZERO_ID, [(0, value, -1, "p" * padding)])]
        request = CommitRequest(self._group("value", partition), topics)
        self.coordinator.offset_commit(request, converted(into(asked), _code_of))
        return asked

    def read(self, partition: int = 0, *, newest: bool = False) -> asyncio.Future[Read]:
        asked: asyncio.Future[Read] = asyncio.get_running_loop().create_future()
        request = FetchGroup(self._group("value", partition), None)
        self.coordinator.offset_fetch(request, converted(into(asked), _value_of), require_stable=newest)
        return asked

    def set_timer(self, after_ms: int, partition: int = 0) -> None:
        protocols = (JoinProtocol("range", b""),)
        group_id = self._group("member", partition)
        request = JoinGroupRequest(group_id, after_ms, "", "consumer", protocols, after_ms)
        self._joining = asyncio.ensure_future(self.coordinator.join_group(Caller(3, "c", "/h"), request))

    def has_fired(self, partition: int = 0) -> bool:
        [described] = self.coordinator.describe_groups(6, [self._group("member", partition)])
        return described.group_state == "Empty"

    def spoil(self, partition: int = 0) -> None:
        self.log.partitions.setdefault(partition, []).append((b"\0\2\0\1g", b"\0\x09"))


def converted(answer: Callable[[T], None], convert: Callable[[U], T]) -> Callable[[U], None]:
    return lambda given: answer(convert(given))


def _code_of(answer: CommitAnswer) -> ErrorCode:
    return ErrorCode(answer if isinstance(answer, int) else answer[0])


def _value_of(fetched: FetchedGroup) -> Read:
    values = [part.committed_offset for topic in fetched.topics for part in topic.partitions]
    return ErrorCode(fetched.error_code), values[0] if values else 0
