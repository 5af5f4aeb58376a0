"""The controller at work: appends what it decides to the metadata log, and answers when that is committed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm._engine import Image
from klamm.controller.controller import Controller
from klamm.controller.result import MAX_BATCH_SIZE, MAX_RECORDS_PER_BATCH, Result
from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.raft.ports import NotLeaderError, RaftStoppedError

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation

log = logging.getLogger(__name__)

T = TypeVar("T")
Q = TypeVar("Q")


class Quorum(Protocol):
    """What the controller needs of raft; `klamm.raft.driver.RaftDriver` is it."""

    def propose(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch; its last offset. Raises NotLeaderError, RaftStoppedError, ValueError."""

    def upgrade_kraft_version(self, epoch: int) -> None:
        """Write kraft.version 1 with the voters to the log. Raises NotLeaderError, RaftStoppedError."""

    @property
    def voter_ids(self) -> frozenset[int]:
        """The node ids of the voters."""

    def kraft_upgrade_refusal(self) -> str | None:
        """Why kraft.version 1 cannot be; None when it can."""

    @property
    def is_followed(self) -> bool:
        """Whether another replica fetches the log, or is to fetch it."""

    def wait_committed(self, offset: int) -> asyncio.Future[None]:
        """Done once the record at `offset` is committed; fails with NotLeaderError or RaftStoppedError."""

    def resign(self, epoch: int) -> None:
        """Lead no longer."""


class TurnMissedError(Exception):
    """A request timed out in the queue. As in Kafka, its timeout bounds the wait in the queue, not the write to disk.
    A caller that forwards a request subtracts the time that the request has already waited.
    """


def batches(result: Result[Any]) -> Iterator[Sequence[bytes]]:
    """The batches that a result's records go in: one when it is atomic."""
    if result.is_atomic:
        if result.records:
            yield result.records
        return
    batch: list[bytes] = []
    size = 0
    for record in result.records:
        if len(batch) == MAX_RECORDS_PER_BATCH or size + len(record) > MAX_BATCH_SIZE:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record)
    if batch:
        yield batch


class ControllerDriver:
    """Runs a `Controller` on the loop's thread, one operation after the other. Answers come in any order."""

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._controller: Final = controller
        self._quorum: Final = quorum
        self._clock: Final = LoopClock()
        self._now_ms: Final = self._clock.now_ms
        self._random_bytes: Final = random_bytes
        self._epoch: int | None = None
        # Everything up to here is appended. An answer without records of its own waits for it too: what it was read
        # from must not be lost after the answer.
        self._appended = -1
        self._timer: Final = DeadlineTimer(self._clock, lambda at_ms: self._on_timer())
        self._under_way: dict[int | None, asyncio.Future[Any]] = {}
        """By broker, the operation of which parts are still to be done."""

    @property
    def epoch(self) -> int | None:
        """The epoch in which this controller is the active one; None while it is not."""
        return self._epoch

    # The quorum's word

    def on_leader(
        self, epoch: int, image: Image, next_offset: int, bootstrap: Sequence[bytes], kraft_version: int
    ) -> None:
        """This node leads `epoch`; `image` is the committed one, which ends before `next_offset`."""
        self._epoch, self._appended = epoch, next_offset - 1
        try:
            result = self._controller.activate(self._now_ms(), image, next_offset, bootstrap, kraft_version)
            self._append(result)
            if result.rest is not None:
                self._finish(result).add_done_callback(self._on_periodic_finished)
                return
        except Exception:  # a controller that could not begin must not lead
            self._fail("activation")
        self._arm()

    def on_not_leader(self) -> None:
        """This node leads no longer."""
        self._epoch = None
        self._controller.deactivate()
        self._timer.cancel()

    # Requests

    async def run(self, operation: Operation[Q, T], request: Q, api_version: int | None = None) -> T:
        """Decide a request when its turn comes, and answer when that is committed. No version: the newest."""
        from klamm.controller.operations.operation import PendingRequest

        newest = APIS[operation.api_key].versions[1]
        asked = PendingRequest(
            request, newest if api_version is None else api_version, self._now_ms, self._random_bytes
        )
        broker_id = operation.broker_id(request)
        try:
            if operation.timeout_ms(request) <= 0:
                raise TurnMissedError("The request's time was over before its turn came.")
            while broker_id in self._under_way:
                await asyncio.wait({self._under_way[broker_id]})
            if operation.by_quorum:
                self._controller.on_quorum(self._quorum.voter_ids, self._quorum.kraft_upgrade_refusal())
            result = operation.decided(self._controller, asked)
            self._append(result)
            if result.rest is not None:
                result = await asyncio.shield(self._finish(result))
            if self._epoch is not None:
                await self._quorum.wait_committed(self._appended)
        except Exception as error:  # every request gets an answer; a fault of ours ends the epoch as well
            refusal = self._as_kafka_error(error, type(request).__name__)
            return operation.refuse(request, refusal.code, refusal.message)
        return result.answer

    def _finish(self, result: Result[T]) -> asyncio.Future[Result[T]]:
        """Do the rest of an operation, a part a turn of the loop; the last result.

        It goes on when its waiter is cancelled. Fails with NotLeaderError or RaftStoppedError.
        """
        task = asyncio.ensure_future(self._do_parts(result, self._epoch))
        if result.broker_id is not None:
            self._under_way[result.broker_id] = task
        task.add_done_callback(lambda done: self._on_finished(result.broker_id, done))
        return task

    def _on_finished(self, broker_id: int | None, done: asyncio.Future[Any]) -> None:
        self._under_way.pop(broker_id, None)
        if not done.cancelled():
            done.exception()  # a waiter has it, if there still is one: asyncio shall not warn

    async def _do_parts(self, result: Result[T], epoch: int | None) -> Result[T]:
        while result.rest is not None:
            await asyncio.sleep(0)  # requests that have arrived are answered first
            if self._epoch != epoch:
                raise NotLeaderError(f"epoch {epoch} ended before all of it was done")
            try:
                result = result.rest()
                self._append(result)
            except (NotLeaderError, RaftStoppedError):
                raise
            except Exception as error:
                self._fail("a part of an operation")
                raise NotLeaderError(f"a part of it failed: {error}") from error
        return result

    def _as_kafka_error(self, error: Exception, operation: str) -> KafkaError:
        if isinstance(error, NotLeaderError | RaftStoppedError):
            return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
        if isinstance(error, TurnMissedError):
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))
        self._fail(operation)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{operation} failed: {error}")

    def _append(self, result: Result[Any]) -> None:
        if result.kraft_version is not None:
            assert self._epoch is not None, "an inactive controller changes no level"
            self._quorum.upgrade_kraft_version(self._epoch)
            self._controller.on_kraft_version(result.kraft_version)
        for batch in batches(result):
            assert self._epoch is not None, "an inactive controller returns no records"
            last_offset = self._quorum.propose(batch, self._epoch)
            self._controller.replay(batch, last_offset + 1 - len(batch))
            self._appended = last_offset

    def _fail(self, operation: str) -> None:
        """We did wrong, and what is in memory may not be what is in the log: let another, or a new start, lead."""
        log.exception("%s failed; resigning from epoch %s", operation, self._epoch)
        if self._epoch is not None:
            self._quorum.resign(self._epoch)

    # The clock

    def _arm(self) -> None:
        try:
            self._timer.arm(self._controller.deadline_ms)
        except Exception:  # a controller without a clock must not lead; the next that leads sets it again
            self._fail("the clock")

    def _on_timer(self) -> None:
        try:
            result = self._controller.on_deadline(self._now_ms(), is_followed=self._quorum.is_followed)
            if result is not None:
                self._append(result)
                if result.rest is not None:
                    self._finish(result).add_done_callback(self._on_periodic_finished)
                    return
        except (NotLeaderError, RaftStoppedError):
            return  # on_not_leader follows, or the node stops
        except Exception:  # as for a request, without anybody to answer
            self._fail("a periodic task")
            return
        self._arm()

    def _on_periodic_finished(self, done: asyncio.Future[Any]) -> None:
        """The clock stands still until a task is done: the next one would begin with a state in between."""
        if not done.cancelled() and done.exception() is None:
            self._arm()

    def close(self) -> None:
        """Stop the clock."""
        self._timer.cancel()
