"""The active controller, wherever it is: in this process, which is a call, or in another, which is a request.

Where there is none, where it is another by now, or where it cannot be reached, the question is asked again until its
time is over, as by Kafka's NodeToControllerChannelManager. A change that was made, and whose answer was lost, is
then refused as made already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm.node.controller.controller_channel import FORWARD_TIMEOUT_MS
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client.peer import Address, Peers, Versions
    from klamm.config.node_config import NodeConfig
    from klamm.controller.driver import ControllerDriver
    from klamm.controller.operations.operation import Operation
    from klamm.protocol.deadlines import Deadlines
    from klamm.raft.voters.voter_set import Endpoint

log = logging.getLogger("klamm.node.controller")

T = TypeVar("T")
Q = TypeVar("Q")

PAUSE_S: Final = 0.02
LAST_WORD_S: Final = 0.5
# A controller whose host is gone does not answer: a waiting request must try the next one within its time-out.
ATTEMPT_TIMEOUT_MS: Final = 30_000


class Quorum(Protocol):
    """What is asked of raft; `klamm.raft.driver.RaftDriver` is it."""

    @property
    def leader_id(self) -> int | None:
        """The leader that this node knows of."""

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where it listens."""


class ActiveController:
    """What this node asks the active controller for. The local one, where there is one, answers while it is active."""

    def __init__(self, config: NodeConfig, local: ControllerDriver | None, quorum: Quorum) -> None:
        self._config, self._local, self._quorum = config, local, quorum
        self._client: Peers | None = None
        self._asked: Address | None = None  # the active controller as last seen; None for the local one
        self._on_versions: Callable[[Versions | None], None] | None = None
        self._told_versions: Versions | None = None

    def follow_versions(self, on_versions: Callable[[Versions | None], None]) -> None:
        """Tell what the active controller speaks when that is another; at first that is not known.

        None while it is not known, and where the local one is active.
        """
        self._on_versions = on_versions

    # Where it is

    @property
    def local(self) -> ControllerDriver | None:
        """The controller of this process, while it is the active one."""
        return self._local if self._local is not None and self._local.epoch is not None else None

    @property
    def address(self) -> Address | None:
        """Where another process's controller listens, if this node knows of one that leads."""
        if self._quorum.leader_id in (None, self._config.node_id):
            return None
        endpoints = self._quorum.leader_endpoints
        names = self._config.controller_listener_names
        found = next((one for one in endpoints if one.listener in names), endpoints[0] if endpoints else None)
        return None if found is None else (found.host, found.port)

    @property
    def client(self) -> Peers:
        """This node as a client of controllers; its connections are not raft's, whose fetches keep others waiting."""
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
            self._client = Peers(config, self._tell_versions)
        return self._client

    @property
    def elsewhere(self) -> Address | None:
        """Where another process's controller is to be asked; None where the local one is active, or none is known."""
        address = None if self.local is not None else self.address
        if address is not None:
            self._see(address)
        return address

    @cached_property
    def _deadlines(self) -> Deadlines:
        from klamm.protocol.deadlines import Deadlines

        return Deadlines()

    def _see(self, address: Address | None) -> None:
        """It listens there, or is the local one."""
        if address != self._asked:
            self._asked = address
            self._tell_versions()

    def _tell_versions(self) -> None:
        if self._on_versions is None:
            return
        versions = None if self._asked is None else self.client.peer(self._asked).versions
        if versions != self._told_versions:
            self._told_versions = versions
            self._on_versions(versions)

    def close(self) -> None:
        """Ask nothing more; what is under way fails."""
        self._deadlines.close()
        if self._client is not None:
            self._client.close()

    # Asking

    async def ask(self, operation: Operation[Q, T], request: Q, timeout_ms: int = FORWARD_TIMEOUT_MS) -> T:
        """The answer of the active controller; after the time-out one that refuses with REQUEST_TIMED_OUT."""
        versions, wire = APIS[operation.api_key].versions, operation.wire

        async def local(controller: ControllerDriver) -> T | None:
            answer = await controller.run(operation, request)
            return None if _is_of_no_controller(answer) else answer

        async def remote(address: Address, left_ms: int) -> T | None:
            if wire is None:
                answer: T = await self.client.ask(address, request, operation.response, versions, left_ms)
            else:
                message = wire.write_request(request)
                answered = await self.client.ask(address, message, wire.response, versions, left_ms)
                answer = wire.read_response(request, answered)
            return None if _is_of_no_controller(answer) else answer

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
        """Ask the active controller until one answers; None means that it is not active. None after the time-out.

        The second one gets the time that is left to wait for an answer; it may raise ClientError.
        """
        local = self.local
        if local is not None:  # mostly there, and then nothing of clients is imported
            self._see(None)
            answer = await ask_local(local)
            if answer is not None:
                return answer
        from klamm.client import ClientError

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while (left_s := deadline - loop.time()) > 0:
            answer, local, address = None, self.local, self.address
            if local is not None:
                self._see(None)
                answer = await ask_local(local)
            elif address is not None:
                self._see(address)
                asking = ask_remote(address, max(1, min(ATTEMPT_TIMEOUT_MS, int(1000 * left_s))))
                try:
                    answer = await self._while_it_leads(asking, address)
                except ClientError as error:
                    log.debug("asking again: %s", error)
            if answer is not None:
                return answer
            await asyncio.sleep(PAUSE_S)
        leader_id = self._quorum.leader_id
        known = "no leader is known" if leader_id is None else f"node {leader_id} leads the quorum, as far as is known"
        log.warning("no active controller answered within %d ms: %s", timeout_ms, known)
        return None

    async def _while_it_leads(self, asking: Awaitable[T | None], address: Address) -> T | None:
        """The answer from that address, unless another controller leads by now; see `watch`."""
        loop = asyncio.get_running_loop()
        end = self.watch(address, lambda: limit.reschedule(loop.time()))
        try:
            async with asyncio.timeout(None) as limit:
                return await asking
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            end()

    def watch(self, address: Address, on_other: Callable[[], None]) -> Callable[[], None]:
        """Tell when another leads than who listens there and is asked: a host that is gone answers nothing.

        Who was the leader and lives has its time to say what became of a request. What is given back ends the watch.
        """
        was_leading, token = self.address == address, -1

        def look() -> None:
            nonlocal was_leading, token
            if not was_leading and self.address is not None:
                log.info("node at %s:%d leads no more and does not answer; asking its successor", *address)
                on_other()
                return
            was_leading = self.address == address
            token = self._deadlines.add(LAST_WORD_S, look)

        def end() -> None:
            self._deadlines.remove(token)

        token = self._deadlines.add(LAST_WORD_S, look)
        return end


def _is_of_no_controller(answer: Any) -> bool:
    """Whether an answer says, as a whole or for any topic, that who gave it is not the active controller."""
    items = (answer, *getattr(answer, "topics", ()))
    return any(getattr(item, "error_code", None) is ErrorCode.NOT_CONTROLLER for item in items)
