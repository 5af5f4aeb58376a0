"""The driver of the controller: appends decisions to the metadata log, and responds when they are committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, assert_never

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller
from klamm.controller.effects import Append, Effect, Reply, UpgradeKraftVersion
from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.raft.ports import NotLeaderError, RaftStoppedError

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation
    from klamm.controller.requester import Requester

log = logging.getLogger(__name__)

T = TypeVar("T")
Q = TypeVar("Q")


class Quorum(Protocol):
    """The interface of raft for the controller; implemented by `klamm.raft.driver.RaftDriver`."""

    def propose(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch; its last offset. Raises NotLeaderError, RaftStoppedError, ValueError."""

    def upgrade_kraft_version(self, epoch: int) -> None:
        """Write kraft.version 1 with the voters to the log. Raises NotLeaderError, RaftStoppedError."""

    @property
    def voter_ids(self) -> frozenset[int]:
        """The node ids of the voters."""

    def kraft_upgrade_refusal(self) -> str | None:
        """The reason why kraft.version 1 is not possible; None if it is."""

    @property
    def is_followed(self) -> bool:
        """Whether another replica fetches the log, or should."""

    def wait_committed(self, offset: int) -> asyncio.Future[None]:
        """Done once the record at `offset` is committed; fails with NotLeaderError or RaftStoppedError."""

    def resign(self, epoch: int) -> None:
        """Resign the leadership of the epoch."""


class ControllerDriver:
    """Runs a `Controller` on the loop's thread."""

    def __init__(self, controller: Controller, quorum: Quorum) -> None:
        self._controller: Final = controller
        self._quorum: Final = quorum
        self._clock: Final = LoopClock.of_sessions()
        self._now_ms: Final = self._clock.now_ms
        self._timer: Final = DeadlineTimer(self._clock, lambda at_ms: self._on_timer())
        self._epoch: int | None = None
        self._appended = -1
        """Everything up to this offset is appended."""

    @property
    def epoch(self) -> int | None:
        """The epoch in which this controller is the active one; None while it is not."""
        return self._epoch

    # Events of the quorum

    def on_leader(
        self, epoch: int, image: Image, next_offset: int, bootstrap: Sequence[bytes], kraft_version: int
    ) -> None:
        """This node leads `epoch`; `image` is the committed one, which ends before `next_offset`."""
        self._epoch, self._appended = epoch, next_offset - 1
        try:
            self._carry_out(self._controller.on_leader(self._now_ms(), image, next_offset, bootstrap, kraft_version))
        except Exception:  # a controller that could not begin must not lead
            self._fail("activation")
        self._arm()

    def on_not_leader(self) -> None:
        """This node is not the leader any more."""
        self._epoch = None
        self._timer.cancel()
        self._carry_out(self._controller.on_not_leader(self._now_ms()))

    def on_broker_crashed(self, broker_id: int, broker_epoch: int) -> None:
        """There is evidence that the process of a broker has ended."""
        if self._epoch is None:
            return
        try:
            self._controller.on_broker_crashed(self._now_ms(), broker_id, broker_epoch)
        except Exception:  # a fault ends the epoch, as that of a request does
            self._fail("the end of a broker's session")
        self._arm()

    # Requests

    async def run(
        self,
        operation: Operation[Q, T],
        request: Q,
        api_version: int | None = None,
        requester: Requester | None = None,
    ) -> T:
        """Decide a request when its turn comes, and respond when the decision is committed. No version: the newest."""
        version = APIS[operation.api_key].versions[1] if api_version is None else api_version
        ticket: asyncio.Future[tuple[T, int | None]] = self._clock.loop.create_future()
        try:
            if operation.by_quorum:
                self._controller.on_quorum(self._quorum.voter_ids, self._quorum.kraft_upgrade_refusal())
            resolved = await self._resolved(hosts) if (hosts := operation.hosts(request)) else hosts
            decided = self._controller.on_request(
                self._now_ms(), ticket, operation, request, version, requester=requester, resolved_hosts=resolved
            )
            self._carry_out(decided)
            if not ticket.done():
                self._arm()
            answer, last_offset = await ticket
            if last_offset is not None:
                await self._quorum.wait_committed(last_offset)
        except Exception as error:  # every request gets an answer; a fault of ours ends the epoch as well
            refusal = self._as_kafka_error(error, type(request).__name__)
            return operation.refuse(request, refusal.code, refusal.message)
        return answer

    async def _resolved(self, hosts: frozenset[str]) -> frozenset[str]:
        """The hosts that have an address."""

        async def has_address(host: str) -> bool:
            try:
                return bool(await self._clock.loop.getaddrinfo(host, None))
            except (OSError, UnicodeError):  # also a name that no encoding of host names has
                return False

        names = list(hosts)
        found = await asyncio.gather(*map(has_address, names))
        return frozenset(name for name, is_found in zip(names, found, strict=True) if is_found)

    def _as_kafka_error(self, error: Exception, operation: str) -> KafkaError:
        if isinstance(error, NotLeaderError | RaftStoppedError):
            return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
        self._fail(operation)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{operation} failed: {error}")

    # Effects

    def _carry_out(self, effects: list[Effect]) -> None:
        """Raises NotLeaderError, RaftStoppedError."""
        for effect in effects:
            match effect:
                case Append():
                    self._append(effect.records)
                case Reply():
                    self._reply(effect)
                case UpgradeKraftVersion():
                    assert self._epoch is not None, "an inactive controller changes no level"
                    self._quorum.upgrade_kraft_version(self._epoch)
                    self._controller.on_kraft_version(effect.level)
                case _:
                    assert_never(effect)

    def _append(self, records: Sequence[bytes]) -> None:
        assert self._epoch is not None, "an inactive controller returns no records"
        # Before they are in the log: no node could start with records that cannot be applied.
        after = self._controller.applied(records)
        last_offset = self._quorum.propose(records, self._epoch)
        self._controller.replay(records, last_offset + 1 - len(records), after)
        self._appended = last_offset

    def _reply(self, reply: Reply) -> None:
        if not reply.ticket.done():  # its caller may have been cancelled
            reply.ticket.set_result((reply.response, None if self._epoch is None else self._appended))

    def _fail(self, operation: str) -> None:
        """An internal error: the state in memory may differ from the log, so another controller must take over."""
        log.exception("%s failed; resigning from epoch %s", operation, self._epoch)
        if self._epoch is not None:
            self._quorum.resign(self._epoch)

    # Time

    def _arm(self) -> None:
        try:
            self._timer.arm(self._controller.deadline_ms)
        except Exception:  # a controller without a clock must not lead; the next that leads sets it again
            self._fail("the clock")

    def _on_timer(self) -> None:
        try:
            self._carry_out(self._controller.on_timer(self._now_ms(), is_followed=self._quorum.is_followed))
        except (NotLeaderError, RaftStoppedError):
            return  # on_not_leader follows, or the node stops
        except Exception:  # as for a request, without a caller to answer
            self._fail("a turn of the controller")
            return
        self._arm()

    def close(self) -> None:
        """Stop the clock."""
        self._timer.cancel()
