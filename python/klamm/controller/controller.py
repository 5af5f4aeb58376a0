"""The active controller: requests and the clock in, effects out (`klamm.driving`).

`Decisions` has its decisions and their state. A decision may be deferred to later turns: the parts of a long operation,
and requests that change the same broker meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm._engine.metadata import Image
from klamm.controller.decisions import Decisions
from klamm.controller.effects import Append, Effect, Reply, Ticket, UpgradeKraftVersion
from klamm.controller.operations.operation import PendingRequest
from klamm.controller.periodic import PeriodicSchedule, PeriodicTask, stale_look_ms
from klamm.controller.result import MAX_BATCH_SIZE, MAX_RECORDS_PER_BATCH, Result
from klamm.controller.settings import ControllerSettings
from klamm.controller.turns import Turn, Turns, rest_of
from klamm.driving.running_time import RunningTime
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation
    from klamm.controller.requester import Requester

log = logging.getLogger(__name__)

Q = TypeVar("Q")
T = TypeVar("T")


class Controller:
    """Decides one operation, or one part of it, at a time.

    1. Between two events the driver has carried out all effects: what was decided is in the log and replayed.
    2. Each ticket is answered once; tickets without an answer when leadership ends are refused.
    3. One operation of a broker is in progress at a time.
    """

    def __init__(self, settings: ControllerSettings, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes` returns the given number of random bytes."""
        self._decisions: Final = Decisions(settings)
        self._random_bytes: Final = random_bytes
        periodic = settings.periodic()
        self._schedule: Final = PeriodicSchedule(periodic)
        self._stale_look_ms: Final = stale_look_ms(periodic)
        self._running_time = RunningTime(0, self._stale_look_ms)
        self._has_waited_for_heartbeats = False
        self._turns: Final = Turns()
        self._unanswered: dict[Ticket, Callable[[ErrorCode, str | None], Any]] = {}

    @property
    def is_active(self) -> bool:
        """Whether this node answers as the controller."""
        return self._decisions.is_active

    @property
    def deadline_ms(self) -> int | None:
        """When to call `on_timer`, if nothing else happens."""
        turn_ms = self._turns.due_ms
        if turn_ms is None:
            return self._schedule.deadline_ms
        task_ms = self._task_due_ms
        return turn_ms if task_ms is None else min(turn_ms, task_ms)

    @property
    def _task_due_ms(self) -> int | None:
        return None if self._turns.hold_tasks else self._schedule.deadline_ms

    # Leadership

    def on_leader(
        self, now_ms: int, image: Image, next_offset: int, bootstrap: Sequence[bytes], kraft_version: int
    ) -> list[Effect]:
        """This node became the active controller. `image` contains the whole log, which ends before `next_offset`."""
        result = self._decisions.activate(now_ms, image, next_offset, bootstrap, kraft_version)
        self._running_time = RunningTime(now_ms, self._stale_look_ms)
        self._schedule.start(now_ms)
        return self._begin(now_ms, result, lambda now_ms, answer: [], holds_tasks=True)

    def on_not_leader(self, now_ms: int) -> list[Effect]:
        """Another node leads: drop everything that is not committed, and refuse everything that is not decided."""
        self._decisions.deactivate()
        self._schedule.stop()
        self._turns.clear()
        unanswered, self._unanswered = self._unanswered, {}
        text = "The epoch ended before all of it was done."
        return [Reply(ticket, refuse(ErrorCode.NOT_CONTROLLER, text)) for ticket, refuse in unanswered.items()]

    # The log

    def applied(self, records: Sequence[bytes]) -> Image:
        """The image after the records of an `Append`. Raises MetadataReplayError if they cannot be applied."""
        return self._decisions.applied(records)

    def replay(self, records: Sequence[bytes], first_offset: int, after: Image | None = None) -> None:
        """The records of an `Append`, now in the log from `first_offset` on; `after` is the image with them."""
        self._decisions.replay(records, first_offset, self.applied(records) if after is None else after)

    def on_kraft_version(self, level: int) -> None:
        """The quorum has written that level to the log."""
        self._decisions.set_kraft_version(level)

    def on_broker_crashed(self, now_ms: int, broker_id: int, broker_epoch: int) -> None:
        """There is evidence that the process of a broker has ended: its session ends, so that it is fenced now."""
        if self._decisions.end_broker_session(broker_id, broker_epoch):
            self._schedule.again(PeriodicTask.MAYBE_FENCE_STALE_BROKER, now_ms)

    # Requests

    def on_quorum(self, voters: frozenset[int], kraft_refusal: str | None) -> None:
        """The voters of the quorum, and the reason why it cannot upgrade to the next kraft.version, if there is one.

        Reported before each request that depends on it (`Operation.by_quorum`).
        """
        self._decisions.set_quorum(voters, kraft_refusal)

    def on_request(
        self,
        now_ms: int,
        ticket: Ticket,
        operation: Operation[Q, T],
        request: Q,
        api_version: int,
        *,
        requester: Requester | None = None,
        resolved_hosts: frozenset[str] = frozenset(),
    ) -> list[Effect]:
        """Decide a request, or keep it until the operation of its broker is done.

        `requester` is None for the cluster's own requests, which no quota counts. `resolved_hosts` are those of the
        operation's hosts that have an address.
        """
        if operation.timeout_ms(request) <= 0:
            # As in Kafka, the timeout bounds the wait for the turn, not the write to disk. A caller that forwards a
            # request subtracts the time that the request has already waited.
            text = "The request's time was over before its turn came."
            return [Reply(ticket, operation.refuse(request, ErrorCode.REQUEST_TIMED_OUT, text))]

        def decide(now_ms: int) -> Result[T]:
            running_ms = partial(self._begin_turn, now_ms)
            asked = PendingRequest(
                request, api_version, running_ms, self._random_bytes, now_ms, requester, resolved_hosts
            )
            return operation.decided(self._decisions, asked)

        broker_id = operation.broker_id(request)
        if broker_id is not None and self._turns.must_wait(broker_id):
            self._unanswered[ticket] = partial(operation.refuse, request)
            self._turns.wait(Turn(decide, partial(self._reply, ticket), broker_id))
            return []
        result = decide(now_ms)
        if result.rest is None:
            effects = appends(result)
            effects.append(Reply(ticket, result.answer))
            return effects
        self._unanswered[ticket] = partial(operation.refuse, request)
        return self._begin(now_ms, result, partial(self._reply, ticket))

    def _reply(self, ticket: Ticket, now_ms: int, answer: Any) -> list[Effect]:
        del self._unanswered[ticket]
        return [Reply(ticket, answer)]

    # Turns

    def _begin(
        self, now_ms: int, result: Result[T], done: Callable[[int, T], list[Effect]], *, holds_tasks: bool = False
    ) -> list[Effect]:
        """The effects of an operation's first part; the rest has its turns later. `done` receives the last answer."""
        if result.rest is None:
            return [*appends(result), *done(now_ms, result.answer)]
        self._turns.put_off(now_ms, Turn(rest_of(result), done, result.broker_id, holds_tasks=holds_tasks))
        return appends(result)

    def _take(self, now_ms: int, turn: Turn) -> list[Effect]:
        """The effects of the next part."""
        result = turn.decide(now_ms)
        if result.rest is None:
            self._turns.end(now_ms, turn)
            return [*appends(result), *turn.done(now_ms, result.answer)]
        turn.decide = rest_of(result)
        self._turns.put_off(now_ms, turn)
        return appends(result)

    def _begin_turn(self, now_ms: int) -> int:
        """Returns the time by which sessions are counted."""
        return self._running_time.on_turn(now_ms, self._schedule.deadline_ms)

    def on_timer(self, now_ms: int, *, is_followed: bool) -> list[Effect]:
        """Run the turn or the task that has been due the longest; call again until none is due.

        `is_followed`: another replica fetches the metadata log.
        """
        turn_ms, task_ms = self._turns.due_ms, self._task_due_ms
        if turn_ms is not None and turn_ms <= now_ms and (task_ms is None or turn_ms <= task_ms):
            return self._take(now_ms, self._turns.pop())
        running_ms = self._begin_turn(now_ms)
        task = self._schedule.pop_due(now_ms) if task_ms is not None else None
        if task is None:
            return []
        if task is PeriodicTask.WRITE_NO_OP_RECORD and not is_followed:
            # A log without other replicas needs no such record, and no flush for it.
            self._schedule.put_off(task, now_ms)
            return []

        def done(_: int, has_more: bool) -> list[Effect]:
            if has_more:
                self._schedule.again(task, now_ms)
            return []

        return self._begin(now_ms, self._run(task, running_ms), done, holds_tasks=True)

    def _run(self, task: PeriodicTask, running_ms: int) -> Result[bool]:
        """The task's records, and whether it has more to do at once."""
        match task:
            case PeriodicTask.WRITE_NO_OP_RECORD:
                return self._decisions.write_no_op_record()
            case PeriodicTask.MAYBE_FENCE_STALE_BROKER:
                return Result(False) if self._waits_for_heartbeats() else self._decisions.fence_stale(running_ms)
            case PeriodicTask.ELECT_PREFERRED:
                return self._decisions.elect_preferred()
            case PeriodicTask.ELECT_UNCLEAN:
                return self._decisions.elect_unclean()

    def _waits_for_heartbeats(self) -> bool:
        """Whether heartbeats may be unread since a pause. If so, the check for stale brokers is skipped once.

        A controller that is late at every check must still fence dead brokers.
        """
        pause_ms = self._running_time.take_pause()
        if pause_ms:
            log.warning("The controller did not run for %d ms; broker sessions are extended by that", pause_ms)
        self._has_waited_for_heartbeats = bool(pause_ms) and not self._has_waited_for_heartbeats
        return self._has_waited_for_heartbeats


def appends(result: Result[Any]) -> list[Effect]:
    """The effects that append a result to the log: one batch if it is atomic."""
    effects: list[Effect] = []
    if result.kraft_version is not None:
        effects.append(UpgradeKraftVersion(result.kraft_version))
    if not result.is_atomic:
        effects += map(Append, batches(result.records))
    elif result.records:
        effects.append(Append(result.records))
    return effects


def batches(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Records that need not be atomic, in batches."""
    batch: list[bytes] = []
    size = 0
    for record in records:
        if len(batch) == MAX_RECORDS_PER_BATCH or size + len(record) > MAX_BATCH_SIZE:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record)
    if batch:
        yield batch
