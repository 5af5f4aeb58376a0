"""Sends requests to the active controller: a call if it is in this process, a request over the network if not.

If there is no active controller, if it has changed, or if it cannot be reached, the request is repeated until its
timeout, as by Kafka's `NodeToControllerChannelManager`. If the response to a successful change was lost, the repeated
request is refused because the change has already been made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm.client import ClientError
from klamm.driving.clock import LoopClock
from klamm.driving.deadlines import Deadlines
from klamm.node.controller.controller_channel import FORWARD_TIMEOUT_MS
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm.client.peer import Address, Peers, Versions
    from klamm.config.node_config import NodeConfig
    from klamm.controller.driver import ControllerDriver
    from klamm.controller.operations.operation import Operation
    from klamm.driving.deadlines import Deadlines
    from klamm.raft.voters.voter_set import Endpoint

log = logging.getLogger("klamm.node.controller")

T = TypeVar("T")
Q = TypeVar("Q")

PAUSE_S: Final = 0.02
LAST_WORD_MS: Final = 500
# A controller whose host is down does not respond: a waiting request must reach the next controller before its timeout.
ATTEMPT_TIMEOUT_MS: Final = 30_000


class Quorum(Protocol):
    """Raft as this module uses it; implemented by `klamm.raft.driver.RaftDriver`."""

    @property
    def leader_id(self) -> int | None:
        """The leader, if this node knows it."""

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the leader."""


class ActiveController:
    """Sends this node's requests to the active controller; the local controller answers them while it is active."""

    def __init__(
        self,
        config: NodeConfig,
        local: ControllerDriver | None,
        quorum: Quorum,
        *,
        conditions: Conditions | None = None,
    ) -> None:
        """`conditions`: those of the node of an embedded cluster."""
        self._config, self._local, self._quorum, self._conditions = config, local, quorum, conditions
        self._client: Peers | None = None
        self._last_address: Address | None = None  # the active controller at the last request; None for the local one
        self._on_versions: Callable[[Versions | None], None] | None = None
        self._reported_versions: Versions | None = None

    def follow_versions(self, on_versions: Callable[[Versions | None], None]) -> None:
        """Call `on_versions` with the API versions of a remote active controller whenever they change.

        None while they are unknown, and while the local controller is active.
        """
        self._on_versions = on_versions

    # Address

    @property
    def local(self) -> ControllerDriver | None:
        """The controller of this process while it is the active one."""
        return self._local if self._local is not None and self._local.epoch is not None else None

    @property
    def address(self) -> Address | None:
        """The address of the active controller in another process, if this node knows it."""
        if self._quorum.leader_id in (None, self._config.node_id):
            return None
        endpoints = self._quorum.leader_endpoints
        names = self._config.controller_listener_names
        found = next((one for one in endpoints if one.listener in names), endpoints[0] if endpoints else None)
        return None if found is None else (found.host, found.port)

    @property
    def client(self) -> Peers:
        """This node's connections to controllers. They are separate from raft's, whose fetches would delay requests."""
        if self._client is None:
            from klamm.client.peer import PeerConfig, Peers

            name = f"{'broker' if self._config.is_broker else 'controller'}-{self._config.node_id}-to-controller"
            config = PeerConfig(
                name,
                ATTEMPT_TIMEOUT_MS,
                self._config.integer("socket.connection.setup.timeout.ms"),
                self._config.integer("socket.connection.setup.timeout.max.ms"),
                reconnect_backoff_ms=int(1000 * PAUSE_S),
            )
            self._client = Peers(config, self._report_versions, conditions=self._conditions)
        return self._client

    @property
    def remote_address(self) -> Address | None:
        """The address of the active controller in another process; None if the local one is active or none is known."""
        address = None if self.local is not None else self.address
        if address is not None:
            self._note_address(address)
        return address

    @cached_property
    def _deadlines(self) -> Deadlines:
        return Deadlines()

    def _note_address(self, address: Address | None) -> None:
        """Note the address that the next request goes to; None for the local controller."""
        if address != self._last_address:
            self._last_address = address
            self._report_versions()

    def _report_versions(self) -> None:
        if self._on_versions is None:
            return
        versions = None if self._last_address is None else self.client.peer(self._last_address).versions
        if versions != self._reported_versions:
            self._reported_versions = versions
            self._on_versions(versions)

    def close(self) -> None:
        """Stop; requests in flight fail."""
        self._deadlines.close()
        if self._client is not None:
            self._client.close()

    # Requests

    async def ask(self, operation: Operation[Q, T], request: Q, timeout_ms: int = FORWARD_TIMEOUT_MS) -> T:
        """The response of the active controller; after the timeout a response with the error REQUEST_TIMED_OUT."""
        versions, wire = APIS[operation.api_key].versions, operation.wire

        async def local(controller: ControllerDriver) -> T | None:
            answer = await controller.run(operation, request)
            return None if _is_not_controller(answer) else answer

        async def remote(address: Address, left_ms: int) -> T | None:
            if wire is None:
                answer: T = await self.client.ask(address, request, operation.response, versions, left_ms)
            else:
                message = wire.write_request(request)
                answered = await self.client.ask(address, message, wire.response, versions, left_ms)
                answer = wire.read_response(request, answered)
            return None if _is_not_controller(answer) else answer

        answer = await self.until_answered(local, remote, timeout_ms)
        if answer is not None:
            return answer
        text = f"no active controller answered within {timeout_ms} ms"
        return operation.refuse(request, ErrorCode.REQUEST_TIMED_OUT, text)

    async def until_answered(
        self,
        ask_local: Callable[[ControllerDriver], Awaitable[T | None]],
        ask_remote: Callable[[Address, int], Awaitable[T | None]],
        timeout_ms: int,
    ) -> T | None:
        """Repeat a request until the active controller answers it. Returns None after the timeout.

        Both callables return None if the controller is not active. `ask_remote` receives the remaining time to wait for
        a response; it may raise ClientError.
        """
        local = self.local
        if local is not None:  # the usual case, which imports nothing of the client
            self._note_address(None)
            answer = await ask_local(local)
            if answer is not None:
                return answer

        clock = LoopClock()
        deadline_ms = clock.now_ms() + timeout_ms
        while (left_ms := deadline_ms - clock.now_ms()) > 0:
            answer, local, address = None, self.local, self.address
            if local is not None:
                self._note_address(None)
                answer = await ask_local(local)
            elif address is not None:
                self._note_address(address)
                asking = ask_remote(address, min(ATTEMPT_TIMEOUT_MS, left_ms))
                try:
                    answer = await self._while_it_leads(asking, address)
                except ClientError as error:
                    log.debug("repeating the request: %s", error)
            if answer is not None:
                return answer
            await asyncio.sleep(PAUSE_S)
        leader_id = self._quorum.leader_id
        known = "no leader is known" if leader_id is None else f"node {leader_id} is the last known leader"
        log.warning("no active controller answered within %d ms: %s", timeout_ms, known)
        return None

    async def _while_it_leads(self, asking: Awaitable[T | None], address: Address) -> T | None:
        """The response from that address, or None when another controller becomes leader first; see `watch`."""
        end = self.watch(address, lambda: limit.reschedule(0))  # a time that has passed
        try:
            async with asyncio.timeout(None) as limit:
                return await asking
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            end()

    def watch(self, address: Address, on_new_leader: Callable[[], None]) -> Callable[[], None]:
        """Call `on_new_leader` when another node than the one at `address` leads: a host that is down does not respond.

        A former leader that is alive has `LAST_WORD_MS` to answer its requests. Call the result to stop watching.
        """
        return _Watch(self, self._deadlines, address, on_new_leader).end


class _Watch:
    """A watch of one request (`ActiveController.watch`). After its end it has no reference to the request."""

    __slots__ = ("_address", "_controller", "_deadlines", "_on_new_leader", "_token", "_was_leading")

    def __init__(
        self, controller: ActiveController, deadlines: Deadlines, address: Address, on_new_leader: Callable[[], None]
    ) -> None:
        self._controller, self._deadlines, self._address = controller, deadlines, address
        self._on_new_leader: Callable[[], None] | None = on_new_leader
        self._was_leading = controller.address == address
        self._token = deadlines.add(LAST_WORD_MS, self._check)

    def end(self) -> None:
        """Stop watching."""
        self._deadlines.remove(self._token)
        self._on_new_leader = None

    def _check(self) -> None:
        assert self._on_new_leader is not None, "the deadline is removed when the watch ends"
        leader = self._controller.address
        if not self._was_leading and leader is not None:
            log.info("node at %s:%d is no longer the leader and does not respond; using its successor", *self._address)
            self._on_new_leader()
            return
        self._was_leading = leader == self._address
        self._token = self._deadlines.add(LAST_WORD_MS, self._check)


def _is_not_controller(answer: Any) -> bool:
    """Whether a response says, as a whole or for any topic, that its sender is not the active controller."""
    items = (answer, *getattr(answer, "topics", ()))
    return any(getattr(item, "error_code", None) is ErrorCode.NOT_CONTROLLER for item in items)
