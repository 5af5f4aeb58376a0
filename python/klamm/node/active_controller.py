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

from klamm.protocol import registration as messages
from klamm.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.controller.driver import ControllerDriver
    from klamm.node.config import NodeConfig
    from klamm.protocol.client import Address, Client, Versions
    from klamm.protocol.deadlines import Deadlines
    from klamm.protocol.topics import CreateTopicsRequest, CreateTopicsResponse
    from klamm.raft.voters import Endpoint

log = logging.getLogger("klamm.node.controller")

T = TypeVar("T")

PAUSE_S: Final = 0.02
LAST_WORD_S: Final = 0.5
FORWARD_TIMEOUT_MS: Final = 60_000
REGISTRATION_TIMEOUT_MS: Final = 5_000
# A controller whose host is gone does not answer: a waiting request must try the next one within its time-out.
ATTEMPT_TIMEOUT_MS: Final = 30_000

REGISTRATION_VERSIONS: Final = (0, 4)
HEARTBEAT_VERSIONS: Final = (0, 2)
CREATE_TOPICS_VERSIONS: Final = (2, 7)
ONLY_VERSION: Final = (0, 0)


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
        self._client: Client | None = None
        self._asked: Address | None = None  # the active controller as last seen; None for the local one
        self._on_versions: Callable[[Versions | None], None] | None = None
        self._told_versions: Versions | None = None

    def follow_versions(self, on_versions: Callable[[Versions | None], None]) -> None:
        """Tell what the active controller speaks when that is another; at first that is not known.

        None while it is not known, and where the local one is active.
        """
        self._on_versions = on_versions

    # Of brokers

    async def register_broker(
        self, request: messages.BrokerRegistrationRequest, api_version: int
    ) -> messages.BrokerRegistrationResponse:
        """BrokerRegistration."""
        return await self._ask(
            request,
            messages.BrokerRegistrationResponse,
            REGISTRATION_VERSIONS,
            lambda local: local.register_broker(request, api_version),
            self._config.integer("broker.heartbeat.interval.ms"),
        )

    async def broker_heartbeat(self, request: messages.BrokerHeartbeatRequest) -> messages.BrokerHeartbeatResponse:
        """BrokerHeartbeat."""
        return await self._ask(
            request,
            messages.BrokerHeartbeatResponse,
            HEARTBEAT_VERSIONS,
            lambda local: local.broker_heartbeat(request),
            self._config.integer("broker.heartbeat.interval.ms"),
        )

    async def allocate_producer_ids(
        self, request: messages.AllocateProducerIdsRequest
    ) -> messages.AllocateProducerIdsResponse:
        """AllocateProducerIds."""
        return await self._ask(
            request,
            messages.AllocateProducerIdsResponse,
            ONLY_VERSION,
            lambda local: local.allocate_producer_ids(request),
        )

    async def assign_replicas_to_dirs(
        self, request: messages.AssignReplicasToDirsRequest
    ) -> messages.AssignReplicasToDirsResponse:
        """AssignReplicasToDirs."""
        return await self._ask_until_answered(
            request, lambda local: local.assign_replicas_to_dirs(request), self._assign_elsewhere, FORWARD_TIMEOUT_MS
        )

    async def _assign_elsewhere(
        self, address: Address, request: messages.AssignReplicasToDirsRequest, timeout_ms: int
    ) -> messages.AssignReplicasToDirsResponse:
        from klamm.protocol import directory_assignments as wire

        asked = wire.to_wire(request)
        answer = await self.client.ask(address, asked, wire.DirectoriesResponse, ONLY_VERSION, timeout_ms)
        return wire.answer_from_wire(request, answer)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """CreateTopics, which the broker itself asks for: topics of its own, and those that clients only named."""
        from klamm.protocol.topics import CreateTopicsResponse

        return await self._ask(
            request, CreateTopicsResponse, CREATE_TOPICS_VERSIONS, lambda local: local.create_topics(request)
        )

    # Of controllers

    async def register_controller(
        self, request: messages.ControllerRegistrationRequest
    ) -> messages.ControllerRegistrationResponse:
        """ControllerRegistration."""
        return await self._ask(
            request,
            messages.ControllerRegistrationResponse,
            ONLY_VERSION,
            lambda local: local.register_controller(request),
            REGISTRATION_TIMEOUT_MS,
        )

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
    def client(self) -> Client:
        """This node as a client of controllers; its connections are not raft's, whose fetches keep others waiting."""
        if self._client is None:
            from klamm.protocol.client import Client, ClientConfig

            name = f"{'broker' if self._config.is_broker else 'controller'}-{self._config.node_id}-to-controller"
            config = ClientConfig(
                name,
                ATTEMPT_TIMEOUT_MS,
                self._config.integer("socket.connection.setup.timeout.ms"),
                self._config.integer("socket.connection.setup.timeout.max.ms"),
                reconnect_backoff_ms=int(1000 * PAUSE_S),
            )
            self._client = Client(config, self._tell_versions)
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

    async def _ask(
        self,
        request: Any,
        answer: type[T],
        versions: tuple[int, int],
        ask_local: Callable[[ControllerDriver], Awaitable[T]],
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> T:
        async def ask_remote(address: Address, request: Any, timeout_ms: int) -> T:
            return await self.client.ask(address, request, answer, versions, timeout_ms)

        return await self._ask_until_answered(request, ask_local, ask_remote, timeout_ms)

    async def _ask_until_answered(
        self,
        request: Any,
        ask_local: Callable[[ControllerDriver], Awaitable[T]],
        ask_remote: Callable[[Address, Any, int], Awaitable[T]],
        timeout_ms: int,
    ) -> T:
        """The active controller's answer; after the time-out the request's own answer of REQUEST_TIMED_OUT."""

        async def local(controller: ControllerDriver) -> T | None:
            answer = await ask_local(controller)
            return None if _is_of_no_controller(answer) else answer

        async def remote(address: Address, left_ms: int) -> T | None:
            answer = await ask_remote(address, request, left_ms)
            return None if _is_of_no_controller(answer) else answer

        answer = await self.until_answered(local, remote, timeout_ms)
        if answer is not None:
            return answer
        from klamm.controller.refusals import refuse

        text = f"no active controller answered within {timeout_ms} ms"
        refusal: T = refuse(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
        return refusal

    async def until_answered(
        self,
        ask_local: Callable[[ControllerDriver], Awaitable[T | None]],
        ask_remote: Callable[[Address, int], Awaitable[T | None]],
        timeout_ms: int,
    ) -> T | None:
        """Ask the active controller until one answers; None means that it is not active. None after the time-out.

        The second one gets the time that is left to wait for an answer; it may raise PeerError.
        """
        local = self.local
        if local is not None:  # mostly there, and then nothing of clients is imported
            self._see(None)
            answer = await ask_local(local)
            if answer is not None:
                return answer
        from klamm.protocol.client import PeerError

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
                except PeerError as error:
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
