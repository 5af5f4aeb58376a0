"""Reads and writes the states of share groups at their share coordinators (Kafka's `DefaultStatePersister`).

The coordinator of a share partition is this broker or another one. Another broker has one request in flight for each
API and group; calls that arrive meanwhile share the next one. Transient errors are retried, with growing pauses.
Meanwhile further calls for the same share partition wait, so that writes arrive in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.client import ClientError, ClientTimeoutError, UnsupportedVersionError
from klamm.client.peer import Answer
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.share_state import (
    DeletedPartition,
    DeletedTopic,
    DeleteStateRequest,
    DeleteStateResponse,
    InitializedPartition,
    InitializedTopic,
    InitializeStateRequest,
    InitializeStateResponse,
    PartitionError,
    PartitionState,
    PartitionSummary,
    ReadPartition,
    ReadStateRequest,
    ReadStateResponse,
    ReadSummaryRequest,
    ReadSummaryResponse,
    ReadTopic,
    SharePartitionKey,
    TopicErrors,
    TopicStates,
    TopicSummaries,
    WriteStateRequest,
    WriteStateResponse,
    WrittenPartition,
    WrittenTopic,
)
from klamm.protocol.wire import codec

if TYPE_CHECKING:
    from klamm.client.peer import Outcome
    from klamm.coordinator.share.driver import ShareCoordinator
    from klamm.node.coordinators.other_brokers import OtherBrokers

log: Final = logging.getLogger("klamm.node.share_states")

OnAnswer = Callable[[ErrorCode, bytes], None]
"""Receives the final error of a call, or NONE and the encoded response."""

ATTEMPTS: Final = 5
"""The attempts of a call, and of finding its coordinator."""
BACKOFF: Final = ExponentialBackoff(1_000, 30_000)
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""The errors after which a call is tried again; metadata may be newer here than at the coordinator."""


class Operation(NamedTuple):
    """An API of the share coordinator: its messages, versions, and the class of a partition's result."""

    request: type[Any]
    topic: type[Any]
    response: type[Any]
    results: type[Any]
    """The class of a topic's results."""
    result: type[Any]
    version_max: int = 0

    @property
    def api_key(self) -> int:
        """The key of the API."""
        found: int = self.request.API_KEY
        return found


INITIALIZE: Final = Operation(
    InitializeStateRequest, InitializedTopic, InitializeStateResponse, TopicErrors, PartitionError
)
READ: Final = Operation(ReadStateRequest, ReadTopic, ReadStateResponse, TopicStates, PartitionState)
WRITE: Final = Operation(WriteStateRequest, WrittenTopic, WriteStateResponse, TopicErrors, PartitionError, 1)
DELETE: Final = Operation(DeleteStateRequest, DeletedTopic, DeleteStateResponse, TopicErrors, PartitionError)
SUMMARY: Final = Operation(ReadSummaryRequest, ReadTopic, ReadSummaryResponse, TopicSummaries, PartitionSummary, 1)


class _Call(NamedTuple):
    """A partition in a request to another broker, and the function that receives its result."""

    key: SharePartitionKey
    asked: Any
    answered: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class _Line:
    """The calls of one API and group for one broker."""

    broker: int
    operation: Operation
    group_id: str
    waiting: list[_Call] = field(default_factory=list)
    is_in_flight: bool = False

    def take(self) -> list[_Call]:
        """The calls of the next request: one of each partition. Others of it wait for the request after that."""
        taken: dict[SharePartitionKey, _Call] = {}
        later = []
        for call in self.waiting:
            if call.key in taken:
                later.append(call)
            else:
                taken[call.key] = call
        self.waiting = later
        return list(taken.values())


class Persister:
    """Calls share coordinators. Results have the coordinator's error, or the last one after `ATTEMPTS`."""

    def __init__(
        self,
        node_id: int,
        broker_of: Callable[[SharePartitionKey], int | None],
        here: Callable[[], ShareCoordinator],
        others: Callable[[], OtherBrokers],
        *,
        create_topic: Callable[[], None],
        backoff: ExponentialBackoff = BACKOFF,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`broker_of` returns the broker that coordinates a share partition, if there is one that is alive.

        `create_topic` asks for `__share_group_state`, unless it exists. `draw` returns numbers in [0, 1).
        """
        self._node_id, self._broker_of, self._here, self._others = node_id, broker_of, here, others
        self._create_topic, self._backoff, self._draw = create_topic, backoff, draw
        self._lines: dict[tuple[int, int, str], _Line] = {}
        self._retried: dict[SharePartitionKey, asyncio.Future[None]] = {}
        """The share partitions for which a call is being retried."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def initialize(self, key: SharePartitionKey, asked: InitializedPartition) -> PartitionError:
        """Begin the state of a share partition, or begin it again at an offset (InitializeShareGroupState)."""
        found: PartitionError = await self._call(INITIALIZE, key, asked)
        return found

    async def read(self, key: SharePartitionKey, asked: ReadPartition) -> PartitionState:
        """Read the state for the leader of the partition (ReadShareGroupState)."""
        found: PartitionState = await self._call(READ, key, asked)
        return found

    async def write(self, key: SharePartitionKey, asked: WrittenPartition) -> PartitionError:
        """Change the state (WriteShareGroupState)."""
        found: PartitionError = await self._call(WRITE, key, asked)
        return found

    async def delete(self, key: SharePartitionKey) -> PartitionError:
        """Delete the state (DeleteShareGroupState)."""
        found: PartitionError = await self._call(DELETE, key, DeletedPartition(key.partition))
        return found

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int = -1) -> PartitionSummary:
        """Read the state without its batches (ReadShareGroupStateSummary)."""
        found: PartitionSummary = await self._call(SUMMARY, key, ReadPartition(key.partition, leader_epoch))
        return found

    def answer(self, api_key: int, body: bytes, answer: OnAnswer) -> None:
        """Call back with the final error, or the encoded response, for a request of the engine.

        It is an encoded ReadShareGroupState v0 or WriteShareGroupState v1, and has exactly one partition.
        """
        operation = READ if api_key == READ.api_key else WRITE
        request = codec.read(operation.request, operation.version_max, body)
        [topic] = request.topics
        [asked] = topic.partitions
        key = SharePartitionKey(request.group_id, topic.topic_id, asked.partition)

        def take(result: Any) -> None:
            answer(*_encoded(operation, topic.topic_id, result))

        def take_first(result: Any) -> None:
            if result.error_code in PASSING:
                self._in_background(self._try_again(operation, key, asked, result), take, answer)
            else:
                take(result)

        if key in self._retried or self._broker_of(key) != self._node_id:
            self._in_background(self._call(operation, key, asked), take, answer)
        else:
            here = self._here()
            (here.submit_read if operation is READ else here.submit_write)(key, asked, take_first)

    def _in_background(self, call: Coroutine[Any, Any, Any], take: Callable[[Any], None], answer: OnAnswer) -> None:
        def on_done(done: asyncio.Task[Any]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                return
            if (error := done.exception()) is None:
                take(done.result())
                return
            # The share partition must not wait forever.
            log.error("the state of a share partition could not be read or written", exc_info=error)
            answer(ErrorCode.UNKNOWN_SERVER_ERROR, b"")

        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(on_done)

    def close(self) -> None:
        """Answer nothing more."""
        for task in self._tasks:
            task.cancel()

    # Attempts

    async def _call(self, operation: Operation, key: SharePartitionKey, asked: Any) -> Any:
        await self._turn(key)
        result = await self._try(operation, key, asked)
        if result.error_code not in PASSING:
            return result
        return await self._try_again(operation, key, asked, result)

    async def _try_again(self, operation: Operation, key: SharePartitionKey, asked: Any, result: Any) -> Any:
        """The result of later attempts; `result` is that of the first one."""
        await self._turn(key)
        over = self._retried[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._retry(operation, key, asked, result)
        finally:
            del self._retried[key]
            over.set_result(None)

    async def _turn(self, key: SharePartitionKey) -> None:
        """Wait while an earlier call about the same share partition is tried again."""
        while (over := self._retried.get(key)) is not None:
            await asyncio.shield(over)

    async def _retry(self, operation: Operation, key: SharePartitionKey, asked: Any, result: Any) -> Any:
        for failures in range(ATTEMPTS - 1):
            await asyncio.sleep(self._backoff.time_ms(failures, self._draw) / 1000)
            result = await self._try(operation, key, asked)
            if result.error_code not in PASSING:
                break
        return result

    async def _try(self, operation: Operation, key: SharePartitionKey, asked: Any) -> Any:
        broker = self._broker_of(key)
        if broker is None:
            self._create_topic()
            return operation.result(key.partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if broker == self._node_id:
            return await self._ask_here(operation, key, asked)
        line = self._lines.setdefault((broker, operation.api_key, key.group_id), _Line(broker, operation, key.group_id))
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        line.waiting.append(_Call(key, asked, answered))
        self._send(line)
        return await answered

    async def _ask_here(self, operation: Operation, key: SharePartitionKey, asked: Any) -> Any:
        here = self._here()
        if operation is INITIALIZE:
            return await here.initialize(key, asked)
        if operation is READ:
            return await here.read(key, asked)
        if operation is WRITE:
            return await here.write(key, asked)
        return await (here.delete(key) if operation is DELETE else here.read_summary(key))

    # Other brokers

    def _send(self, line: _Line) -> None:
        if line.is_in_flight:
            return
        if not line.waiting:
            del self._lines[line.broker, line.operation.api_key, line.group_id]
            return
        calls, operation = line.take(), line.operation
        message = operation.request(line.group_id, _topics(operation, calls))
        line.is_in_flight = True
        try:
            peer = self._others().peer(line.broker)
        except ClientError as error:
            asyncio.get_running_loop().call_soon(self._on_outcome, line, calls, error)
            return
        peer.send(
            operation.api_key,
            (0, operation.version_max),
            lambda version: codec.write_request(message, version),
            lambda outcome: self._on_outcome(line, calls, outcome),
        )

    def _on_outcome(self, line: _Line, calls: list[_Call], outcome: Outcome) -> None:
        line.is_in_flight = False
        try:
            found = _results_of(line.operation, outcome)
            for call in calls:
                code = found if isinstance(found, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
                result = line.operation.result(call.key.partition, code)
                if not isinstance(found, ErrorCode):
                    result = found.get((call.key.topic_id, call.key.partition), result)
                if not call.answered.done():
                    call.answered.set_result(result)
        finally:
            self._send(line)


def _encoded(operation: Operation, topic_id: bytes, result: Any) -> tuple[ErrorCode, bytes]:
    if result.error_code is not ErrorCode.NONE:
        return result.error_code, b""
    results = operation.results(topic_id, (result,))
    return ErrorCode.NONE, codec.write(operation.response((results,)), operation.version_max)


def _topics(operation: Operation, calls: list[_Call]) -> tuple[Any, ...]:
    by_topic: dict[bytes, list[Any]] = {}
    for call in calls:
        by_topic.setdefault(call.key.topic_id, []).append(call.asked)
    return tuple(operation.topic(topic_id, tuple(asked)) for topic_id, asked in by_topic.items())


def _results_of(operation: Operation, outcome: Outcome) -> ErrorCode | dict[tuple[bytes, int], Any]:
    """The results by topic id and partition, or the error of all."""
    if isinstance(outcome, UnsupportedVersionError):
        return ErrorCode.UNSUPPORTED_VERSION
    if isinstance(outcome, ClientTimeoutError):
        return ErrorCode.REQUEST_TIMED_OUT
    if not isinstance(outcome, Answer):
        return ErrorCode.NETWORK_EXCEPTION
    try:
        found = codec.read_response(operation.response, outcome.api_version, outcome.body)
    except MalformedRequest:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return {(topic.topic_id, one.partition): one for topic in found.results for one in topic.partitions}
