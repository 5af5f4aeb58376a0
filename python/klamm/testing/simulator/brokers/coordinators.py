"""The coordinators of one life of a simulated broker: the product's, with their runtime, on a simulated event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from klamm.broker.handlers.share_state import ShareStateHandlers
from klamm.broker.handlers.transactions import TransactionHandlers
from klamm.broker.producer_ids import Block, ProducerIds
from klamm.broker.request import Answer, Handler, RequestContext
from klamm.config.rules import checked
from klamm.controller.operations.nodes import ALLOCATE_PRODUCER_IDS
from klamm.coordinator.runtime.driver import into
from klamm.coordinator.runtime.placement import partition_of
from klamm.node.coordinators.appends import Appends
from klamm.node.coordinators.persister import Persister
from klamm.node.groups import NodeGroups
from klamm.node.share_states import NodeShareStates
from klamm.node.transactions import NodeTransactions
from klamm.protocol.api_key import ApiKey
from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.registration import AllocateProducerIdsRequest
from klamm.protocol.principal import ANONYMOUS
from klamm.raft.election.role_states import NEVER_MS
from klamm.testing.simulator.brokers.controller import Asked
from klamm.testing.simulator.brokers.coordinator_engine import PART_BYTES, CoordinatorEngine
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS, PARTITIONS, SESSION_MS
from klamm.testing.simulator.brokers.other_brokers import SimulatedOthers
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.replica_loop import new_loop

if TYPE_CHECKING:
    from klamm._engine.groups import CommitRequest
    from klamm._engine.metadata import Image
    from klamm.broker.handlers.transactions import TransactionHandlers as Handlers
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.groups.commits import CommitAnswer
    from klamm.coordinator.groups.shard import GroupShard
    from klamm.coordinator.runtime.driver import CoordinatorRuntime
    from klamm.coordinator.share.shard import ShareShard
    from klamm.coordinator.transactions.shard import TransactionShard
    from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
    from klamm.protocol.messages.group_messages import (
        Caller,
        FetchedGroup,
        FetchGroup,
        HeartbeatRequest,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        SyncGroupRequest,
        SyncGroupResponse,
        TxnOffsetCommitRequest,
    )
    from klamm.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
    from klamm.protocol.messages.streams_messages import HeartbeatResult, StreamsGroupHeartbeatRequest
    from klamm.protocol.messages.transactions import AddRequest, EndRequest, Pair, Place
    from klamm.testing.simulator.brokers.coordinator_engine import CoordinatedLife
    from klamm.testing.simulator.brokers.network import Reply
    from klamm.testing.simulator.brokers.replication import TransactionalBatch
    from klamm.testing.simulator.brokers.scene import Scene

T = TypeVar("T")

ALLOCATION_VERSION: Final = 0
THREAD_US_MAX: Final = 20_000
CONTEXT: Final = RequestContext(0, 0, 0, None, "PLAINTEXT", ANONYMOUS, "", False, 0, 1 << 60)
SETTINGS: Final = {
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "0@localhost:9093",
    "log.dirs": "simulated",
    "request.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.state.log.load.buffer.size": str(PART_BYTES),
    "offsets.load.buffer.size": str(PART_BYTES),
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.assignment.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.streams.assignment.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.streams.initial.rebalance.delay.ms": "100",
    "group.streams.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.streams.min.session.timeout.ms": str(SESSION_MS),
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.share.assignment.interval.ms": "200",
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.session.timeout.ms": str(SESSION_MS),
    "group.share.initialize.retry.interval.ms": "10000",  # after the attempts of the persister
    "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
    "share.coordinator.load.buffer.size": str(PART_BYTES),
}
STATE_BACKOFF: Final = ExponentialBackoff(50, 500)
"""Of calls of share coordinators."""
LOCKS_US: Final = 100_000
"""Locks end at most so late."""
WRITE_US_MAX: Final = 2_000
BLOCKED_SHARE: Final = 0.1
BLOCKED_US_MAX: Final = 50_000


def _draw_write_us(rng: random.Random) -> int:
    """Writes are sometimes blocked while the file system commits others."""
    return rng.randrange(BLOCKED_US_MAX if rng.random() < BLOCKED_SHARE else WRITE_US_MAX)


def node_config(node_id: int, settings: Mapping[str, str]) -> NodeConfig:
    """The configuration of a broker's coordinators."""
    return checked({**SETTINGS, **settings, "node.id": str(node_id)})


class SimulatedTransactions(NodeTransactions):
    """The transactions of a node, which reach other brokers on the simulated network."""

    others: SimulatedOthers

    @cached_property
    def _others(self) -> SimulatedOthers:
        return self.others

    @property
    def runtime(self) -> CoordinatorRuntime[TransactionShard] | None:
        """The coordinator's, once there is one."""
        return self.coordinator.runtime if self._is_made else None


class SimulatedGroups(NodeGroups):
    """The groups of a node, whose member ids are as the seed says."""

    draw_id: Callable[[], str]

    @property
    def _draw_uuid(self) -> Callable[[], str]:
        return self.draw_id

    @property
    def runtime(self) -> CoordinatorRuntime[GroupShard] | None:
        """The coordinator's, once there is one."""
        return self.coordinator.runtime if self._is_made else None


class SimulatedShareStates(NodeShareStates):
    """The share coordinator of a node, which reaches other brokers on the simulated network."""

    others: SimulatedOthers
    draw: Callable[[], float]

    @cached_property
    def _others(self) -> SimulatedOthers:
        return self.others

    @cached_property
    def persister(self) -> Persister:
        """See `NodeShareStates.persister`."""
        return Persister(
            self._config.node_id,
            self._broker_of,
            lambda: self.coordinator,
            lambda: self._others,
            create_topic=self._create_topic,
            backoff=STATE_BACKOFF,
            draw=self.draw,
        )

    @property
    def runtime(self) -> CoordinatorRuntime[ShareShard] | None:
        """The coordinator's, once there is one."""
        return self.coordinator.runtime if self._is_made else None


class ShareCall(NamedTuple):
    """A share partition reads or writes its state; a `klamm._engine.node.ShareStateEvent`."""

    request_id: int
    api_key: int
    body: bytes


class Coordinators:
    """Of one life."""

    def __init__(self, scene: Scene, broker: CoordinatedLife, config: NodeConfig, *, has_shares: bool = False) -> None:
        """`has_shares`: there are share groups."""
        self._scene, self._broker, self._config, self._has_shares = scene, broker, config, has_shares
        rng = scene.rng
        self._loop = new_loop(lambda: broker.now_ms, lambda: rng.randrange(THREAD_US_MAX) / 1e6)
        self._armed_ms = NEVER_MS
        self._appends = Appends()
        self._has_changed = False
        self._engine: Any = CoordinatorEngine(
            broker, self._appends, self._on_effect, self._on_change, lambda: _draw_write_us(rng) / 1e6
        )
        self._producer_ids = ProducerIds(self._allocate_producer_ids)
        self._loop.run(self._make)

    def _make(self) -> None:
        config, engine, appends = self._config, self._engine, self._appends

        def image() -> Image:
            return self._broker.image

        self.transactions = SimulatedTransactions(
            config,
            engine,
            image,
            appends,
            producer_ids=self._producer_ids,
            groups=lambda: self.groups.coordinator,
            conditions=None,
        )
        self.transactions.others = SimulatedOthers(self._scene, self._broker, image)
        self.share_states = SimulatedShareStates(
            config, engine, image, appends, create=lambda topic: None, conditions=None
        )
        self.share_states.others = SimulatedOthers(self._scene, self._broker, image)
        self.share_states.draw = self._scene.rng.random
        self.groups = SimulatedGroups(
            config, engine, image, appends, verify=self.transactions.verify, share_states=self.share_states
        )
        self.groups.draw_id = lambda: f"{self._scene.rng.getrandbits(64):016x}"

    # The loop

    def run(self, act: Callable[[], None], pump: Callable[[], None]) -> None:
        """Take a step, and what becomes possible by it."""

        def act_and_pump() -> None:
            act()
            self._loop.run_ready()
            self._has_changed = True
            while self._has_changed and self._broker.is_up:
                self._has_changed = False
                pump()
                if self._has_shares:
                    self._pass_calls()
                self._loop.run_ready()

        self._loop.run(act_and_pump)
        for runtime in (self.transactions.runtime, self.groups.runtime, self.share_states.runtime):
            if runtime is not None and runtime.counts.faults:
                raise InvariantViolatedError(f"a coordinator of broker {self._broker.id} fails")
        self._arm()

    def _arm(self) -> None:
        due_ms = self._loop.deadline_ms
        if due_ms >= self._armed_ms:
            return
        self._armed_ms = due_ms

        def wake() -> None:
            if self._armed_ms == due_ms:
                self._armed_ms = NEVER_MS

        self._broker.later(max(0, 1000 * due_ms - self._scene.now_us), wake)

    def _pass_calls(self) -> None:
        """Pass the calls of share partitions to their coordinators."""
        for call in self._broker.engine.take_share_calls():
            event: Any = ShareCall(*call)
            self.share_states.on_call(event)

    def _on_change(self) -> None:
        self._has_changed = True

    def _on_effect(self) -> None:
        self._on_change()
        self._scene.on_coordinator_effect(self._broker.id)

    def forget(self) -> None:
        """The process has ended."""
        self._loop.forget()

    # Metadata

    def start(self) -> None:
        """The broker serves."""
        self.groups.start()
        self.transactions.start()
        if self._has_shares:
            self.share_states.start()
            self._expire_locks()

    def _expire_locks(self) -> None:
        self._broker.engine.expire_locks(self._broker.now_ms)
        self._broker.later(LOCKS_US, self._expire_locks)

    def on_published(self, before: Image, image: Image) -> None:
        """A newer image is committed."""
        delta = image.delta_since(before)
        self.groups.on_published(image, delta)
        self.transactions.on_published(image, delta)
        if self._has_shares:
            self.share_states.on_published(image, delta)

    async def _allocate_producer_ids(self) -> Block:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked = Asked(
            ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(self._broker.id, self._broker.epoch), ALLOCATION_VERSION
        )

        def failed() -> None:
            future.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION))

        self._broker.ask_controller(asked, future.set_result, failed)
        answer = await future
        if answer.error_code is not ErrorCode.NONE:
            raise KafkaError(answer.error_code)
        return Block(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    # Requests

    def transaction_partition(self, transactional_id: str) -> int:
        """The partition of a transactional id."""
        return partition_of(transactional_id, self._config.integer("transaction.state.log.num.partitions"))

    async def add_partitions(self, request: AddRequest) -> ErrorCode:
        """AddPartitionsToTxn of a client."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.transactions.coordinator.add_partitions(request, into(future))
        return await future

    async def end(self, request: EndRequest) -> Pair:
        """EndTxn."""
        future: asyncio.Future[Pair] = asyncio.get_running_loop().create_future()
        self.transactions.coordinator.end(request, into(future))
        return await future

    async def commit_offset(self, version: int, request: TxnOffsetCommitRequest) -> ErrorCode:
        """TxnOffsetCommit of one partition."""
        codes = await self.groups.coordinator.txn_offset_commit(version, request)
        return ErrorCode(codes if isinstance(codes, int) else codes[0])

    async def fetch_offsets(self, request: FetchGroup, *, require_stable: bool) -> FetchedGroup:
        """OffsetFetch of one group."""
        future: asyncio.Future[FetchedGroup] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.offset_fetch(request, into(future), require_stable=require_stable)
        return await future

    async def heartbeat(self, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Any:
        """ConsumerGroupHeartbeat."""
        future: asyncio.Future[ConsumerGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.consumer_group_heartbeat(caller, request, into(future))
        return await future

    async def join(self, caller: Caller, request: JoinGroupRequest) -> JoinGroupResponse:
        """JoinGroup."""
        return await self.groups.coordinator.join_group(caller, request)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup."""
        return await self.groups.coordinator.sync_group(request)

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup."""
        return await self.groups.coordinator.leave_group(request)

    async def classic_heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.heartbeat(request, into(future))
        return await future

    async def streams_heartbeat(self, caller: Caller, request: StreamsGroupHeartbeatRequest) -> HeartbeatResult:
        """StreamsGroupHeartbeat."""
        future: asyncio.Future[HeartbeatResult] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.streams.heartbeat(caller, request, into(future))
        return await future

    async def share_heartbeat(self, caller: Caller, request: ShareGroupHeartbeatRequest) -> Any:
        """ShareGroupHeartbeat."""
        future: asyncio.Future[ShareGroupHeartbeatResponse] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.share.heartbeat(caller, request, into(future))
        return await future

    async def commit(self, request: CommitRequest) -> ErrorCode:
        """OffsetCommit of one partition."""
        future: asyncio.Future[CommitAnswer] = asyncio.get_running_loop().create_future()
        self.groups.coordinator.offset_commit(request, into(future))
        codes = await future
        return ErrorCode(codes if isinstance(codes, int) else codes[0])

    def verify(self, batch: TransactionalBatch, done: Callable[[int], None]) -> None:
        """Ask the transaction coordinator for a batch that begins a transaction here."""
        producer_id, epoch, _ = batch.producer

        async def verify() -> None:
            codes = await self.transactions.verify(
                batch.transactional_id, producer_id, epoch, [batch.place], is_adding=batch.is_adding
            )
            # A network task appends, which may run late.
            self._broker.later(self._scene.network.delay_us(), lambda: done(codes[0]))

        self._loop.create_task(verify())

    def do(self, work: Callable[[Coordinators], Any], reply: Reply) -> None:
        """A client's request has arrived: `work` returns a coroutine, whose result is the answer."""
        if not self._broker.is_serving:
            return
        task = self._loop.create_task(work(self))
        task.add_done_callback(lambda done: None if done.cancelled() else reply(done.result()))

    async def prepare_producer_ids(self) -> None:
        """Wait for a block of producer ids, if there is none."""
        with suppress(KafkaError):  # the coordinator refuses what needs one
            await self._producer_ids.prepare()

    def answer(self, api_key: int, version: int, body: bytes, reply: Reply) -> None:
        """A request of another broker has arrived."""
        handlers = {
            ApiKey.ADD_PARTITIONS_TO_TXN: self._handlers.add_partitions_to_txn,
            ApiKey.WRITE_TXN_MARKERS: self._handlers.write_txn_markers,
        }
        if api_key in handlers:
            handler = handlers[ApiKey(api_key)]
            self.do(lambda _: _answered(handler, version, body), reply)
            return
        states = ShareStateHandlers(self.share_states.coordinator)
        of_states = {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: states.initialize,
            ApiKey.READ_SHARE_GROUP_STATE: states.read,
            ApiKey.WRITE_SHARE_GROUP_STATE: states.write,
        }
        self.do(lambda _: of_states[ApiKey(api_key)](CONTEXT, version, body), reply)

    @cached_property
    def _handlers(self) -> Handlers:
        return TransactionHandlers(
            self.transactions.coordinator, self._has_partition, self._place_of_group, self.transactions.write_markers
        )

    def _has_partition(self, topic: str, partition: int) -> bool:
        return self._broker.image.leader(topic, partition) is not None

    def _place_of_group(self, group_id: str) -> Place:
        return self.groups.topic, self.groups.partition_for(group_id)


async def _answered(handle: Callable[[RequestContext, int, bytes, Answer], None], version: int, body: bytes) -> bytes:
    """The answer of an inline handler."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    handle(CONTEXT, version, body, _FutureAnswer(answered))
    return await answered


class _FutureAnswer:
    """An `Answer` into a future."""

    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered

    def give(self, body: bytes) -> None:
        """See `Answer.give`."""
        if not self._answered.done():
            self._answered.set_result(body)

    def written(self, write: Callable[[T], bytes]) -> Callable[[T], None]:
        """See `Answer.written`."""
        return lambda value: self.give(write(value))

    def fail(self, error: Exception) -> None:
        """See `Answer.fail`."""
        self._answered.set_exception(error)

    def leave_to(self, handler: Handler) -> None:
        """See `Answer.leave_to`."""
        raise AssertionError(f"{handler} would need a task")
