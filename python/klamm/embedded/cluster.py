"""A cluster inside this process, for tests, notebooks and tools. It installs no signal handler and prints nothing.
After `close` no thread and no file of it remain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from klamm._engine.metadata import Image
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.coordinator.runtime.driver import into
from klamm.embedded.groups import GroupState, membership, state_of
from klamm.embedded.members import Member, Members, lost_between, plan
from klamm.embedded.nodes_thread import STOP_TIMEOUT_S, NodesThread
from klamm.embedded.parts import (
    AdvancedTime,
    Broker,
    Clock,
    ClusterClosedError,
    ClusterNode,
    Controller,
    NetworkPartition,
    client_address,
)
from klamm.embedded.read_committed import Row, read_committed
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.node import Node, NodeFailedError
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import FetchGroup
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.protocol.messages.transactions import ListTransactionsRequest
from klamm.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from klamm.protocol.membership import Membership
    from klamm.protocol.messages.group_messages import FetchedGroup, FetchedTopic
    from klamm.protocol.messages.topics import CreateTopicsRequest

T = TypeVar("T")

START_TIMEOUT_S = 30.0
ELECTION_TIMEOUT_S = 10.0
READ_BYTES = 4 << 20
HEARD_POLL_S = 0.001

# Without any handler Python prints warnings to stderr, which a guest does not do; its host may add handlers of its own.
logging.getLogger("klamm").addHandler(logging.NullHandler())


class StoredRecord(NamedTuple):
    """One record of a topic; `partition` and `offset` say where it is."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TransactionState(NamedTuple):
    """A transactional id; `state` is named as in DescribeTransactions, such as Ongoing.

    `partitions` are those that its transaction has not ended yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


async def _when_elected(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, which is asked for again while an election is under way. Raises KafkaError."""
    end = time.monotonic() + ELECTION_TIMEOUT_S
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.code.is_retriable or time.monotonic() > end:
                raise
        await asyncio.sleep(HEARD_POLL_S)


class Cluster:
    """Nodes in this process, on free ports of this machine, in a folder of their own.

    `brokers` nodes of both roles, one by default; or with `controllers=3` three controllers, and brokers besides.

    `with Cluster() as cluster:` or `async with Cluster() as cluster:`; `Cluster()` alone starts too, and `close()` ends
    it. Without `data` the folder is temporary: removed on close, and nothing in it is flushed to the disk unless
    `flush=True`. `config` are server.properties keys of every node, `racks` the rack of each broker in turn.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        brokers: int = 1,
        controllers: int | None = None,
        racks: Sequence[str] | None = None,
        flush: bool | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Start; returns when the broker serves. Raises ValueError, NodeConfigError, StorageError, OSError."""
        durable = (data is not None) if flush is None else flush
        given = {"klamm.flush.before.ack": "all" if durable else "none"} | dict(config or {})
        self._process_id = os.getpid()
        self._advanced = AdvancedTime()
        self._nodes = nodes = NodesThread(
            None if data is None else Path(data),
            lambda folder: plan(folder, brokers, controllers, given, racks),
            is_volatile=data is None and not durable,
        )
        # A cluster that is dropped without being closed. At the process's end nothing can be closed any more.
        weakref.finalize(self, nodes.abandon).atexit = False
        try:
            nodes.begin()
            if nodes.opened.wait(START_TIMEOUT_S):
                nodes.opened.result(0)
                return
        except BaseException:  # also Ctrl-C, perhaps before the thread began
            nodes.abandon()
            nodes.wait_for_end()
            raise
        nodes.end()
        nodes.wait_for_end(STOP_TIMEOUT_S)
        raise TimeoutError(f"the cluster in {nodes.data} did not start within {START_TIMEOUT_S:.0f} s")

    @property
    def data(self) -> Path:
        """The folder of the nodes' data."""
        assert self._nodes.data is not None, "made before anything else"
        return self._nodes.data

    @property
    def _members(self) -> Members:
        assert self._nodes.members is not None, "made before the cluster serves"
        return self._nodes.members

    @property
    def _node(self) -> Node:
        """A broker that runs, is not cut off, and knows most; if none runs, the first one."""

        def rank(member: Member) -> tuple[bool, bool, int, int]:
            lost = len(self._members.lost_by(member.id))
            return not member.is_running, member.is_paused, lost, -member.node.metadata.applied_offset

        return min(self._broker_members, key=rank).node

    @property
    def _broker_members(self) -> list[Member]:
        return [member for member in self._members.all if member.config.is_broker]

    def _node_of(self, broker_id: int) -> Node | None:
        """The node of a broker, if it runs."""
        running = (member.node for member in self._broker_members if member.is_running)
        return next((node for node in running if node.config.node_id == broker_id), None)

    # Its properties

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for clients: host:port, with commas between."""
        return ",".join("{}:{}".format(*client_address(member.node)) for member in self._broker_members)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers, in the order of their ids."""
        return tuple(Broker(self.run, member) for member in self._broker_members)

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """The controllers that are not brokers."""
        apart = (member for member in self._members.all if not member.config.is_broker)
        return tuple(Controller(self.run, member) for member in apart)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, 22 characters."""
        return self._node.cluster_id

    # What tests do to it

    @property
    def clock(self) -> Clock:
        """Its clock, to be advanced."""
        return Clock(self.run, self._advanced)

    def partition_network(
        self, *groups: Iterable[Broker | Controller] | Broker | Controller, one_way: bool = False
    ) -> NetworkPartition:
        """Cut the network between nodes: two of them communicate only if one group contains both.

        Nodes of no group form one more group. Connections are neither refused nor closed: bytes between two sides do
        not arrive until the network heals. With `one_way`, only messages from the nodes of the first group are lost.
        Clients still reach every node.

        In a `with` block it heals at the end. Several partitions at a time add up. Raises ValueError.
        """
        nodes = [[group] if isinstance(group, ClusterNode) else list(group) for group in groups]
        if not any(nodes):
            raise ValueError("partition_network needs the nodes of one side at least")
        named, ids = [[node.id for node in group] for group in nodes], [member.id for member in self._members.all]
        if foreign := {node_id for group in named for node_id in group}.difference(ids):
            raise ValueError(f"no nodes of this cluster: {sorted(foreign)}")
        lost = lost_between(named, ids)
        if one_way:
            lost = frozenset(link for link in lost if link[0] in named[0])

        async def cut() -> None:
            self._members.cut(lost)

        async def heal() -> None:
            self._members.heal(lost)

        self.run(cut())
        return NetworkPartition(lambda: self.run(heal()))

    def heal_network(self) -> None:
        """End every partition."""

        async def heal() -> None:
            self._members.heal()

        self.run(heal())

    # What tests ask

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] = (),
    ) -> None:
        """Create a topic; the brokers know it when this returns. Raises KafkaError.

        As with Kafka's admin client, a request that is repeated after a change of the active controller may find the
        topic that its first attempt created: TOPIC_ALREADY_EXISTS, with a message that says so.
        """
        placed = tuple(CreatableReplicaAssignment(index, tuple(ids)) for index, ids in enumerate(assignments))
        settings = tuple(CreatableTopicConfig(key, value) for key, value in (config or {}).items())
        topic = CreatableTopic(
            name, -1 if placed else partitions, -1 if placed else replication_factor, placed, settings
        )
        request = CreateTopicsRequest((topic,), int(START_TIMEOUT_S * 1000))
        self.run(self._create(request))

    async def _create(self, request: CreateTopicsRequest) -> None:
        node, raft = self._node, self._node.metadata.raft
        epoch, was_there = raft.epoch, node.image.topic_id(request.topics[0].name) is not None
        [result] = (await node.metadata.active_controller.ask(CREATE_TOPICS, request)).topics
        if result.error_code is ErrorCode.TOPIC_ALREADY_EXISTS and raft.epoch != epoch and not was_there:
            # Not a success: a topic does not record the request that created it, so it may be another client's.
            text = (
                f"{result.error_message} The active controller changed during this request, which may have created it."
            )
            raise KafkaError(result.error_code, text)
        if result.error_code is not ErrorCode.NONE:
            raise KafkaError(result.error_code, result.error_message)
        # A controller on another node answers once the topic is committed; the brokers apply that a little later.
        end = time.monotonic() + START_TIMEOUT_S
        cut_off = self._members.lost_by(node.config.node_id)
        awaited = [
            member
            for member in self._broker_members
            if member.is_running and not member.is_paused and member.id not in cut_off
        ]
        while any(member.node.image.topic_id(result.name) != result.topic_id for member in awaited):
            if time.monotonic() > end:
                text = f"topic '{result.name}' was created; the brokers did not apply it in {START_TIMEOUT_S:.0f} s"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
            await asyncio.sleep(HEARD_POLL_S)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self._image().topic_names()

    def registered_controllers(self) -> list[int]:
        """The ids of the controllers that have registered."""
        return self._image().controller_ids()

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> list[StoredRecord]:
        """The records of a topic below the high watermark, partition by partition, in offset order. Raises KafkaError.

        `read_committed` omits records of aborted transactions, and ends at the first open one. After a failure, it
        waits until the next leader of a partition knows which records were acknowledged.
        """
        if isolation_level not in ("read_uncommitted", "read_committed"):
            text = f"isolation_level is '{isolation_level}': it has to be read_uncommitted or read_committed"
            raise ValueError(text)
        image = self._image()
        topic_id = image.topic_id(topic)
        if topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'")
        count = image.topic_partition_count(topic_id)
        if partition is not None and not 0 <= partition < count:
            text = f"topic '{topic}' has no partition {partition}: it has {count}, from 0 on"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        indexes = range(count) if partition is None else [partition]
        with self._until_closed():
            leaders = self.run(self._leaders_of(topic_id, indexes))
            rows = [(index, self._rows_of(leader, topic_id, index, end)) for index, (leader, end) in leaders.items()]
            if isolation_level == "read_committed":
                rows = [(index, iter(read_committed(found))) for index, found in rows]
            return [
                StoredRecord(index, at, key, value)
                for index, found in rows
                for at, key, value, _, is_control in found
                if not is_control
            ]

    def _rows_of(self, leader: Node, topic_id: bytes, partition: int, end: int) -> Iterator[Row]:
        offset = 0
        while offset < end:
            following, rows = leader.engine.read_records(topic_id, partition, offset, READ_BYTES)
            if following == offset:
                return
            yield from (row for row in rows if row[0] < end)
            offset = following

    async def _leaders_of(self, topic_id: bytes, partitions: Sequence[int]) -> dict[int, tuple[Node, int]]:
        """The leader of each partition, and the high watermark there."""

        async def find(partition: int) -> tuple[Node, int]:
            leader = self._leader_of(topic_id, partition)
            return leader, leader.engine.high_watermark(topic_id, partition)

        return {partition: await _when_elected(partial(find, partition)) for partition in partitions}

    def _leader_of(self, topic_id: bytes, partition: int) -> Node:
        """The node that leads a partition. Raises KafkaError."""
        info = self._image().partition(topic_id, partition)
        node = None if info is None else self._node_of(info.leader)
        if node is None:
            text = f"partition {partition} of '{self._image().topic_name(topic_id)}' has no leader now"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        return node

    def _coordinator_of(self, group: str) -> Node | None:
        """The node that coordinates a group; None while no group ever committed. Raises KafkaError."""
        node = self._node
        topic_id = node.image.topic_id(GROUPS_TOPIC)
        return None if topic_id is None else self._leader_of(topic_id, node.groups.partition_for(group))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group. Raises KafkaError.

        After a failure it waits until the next coordinator has loaded them.
        """
        fetched = self.run(_when_elected(partial(self._offsets_of, group)))
        return {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in fetched
            for partition in topic.partitions
        }

    def group(self, name: str) -> GroupState:
        """A group with its members, epochs, targets and lag. Raises KafkaError, also if there is no such group.

        After a failure it waits until the next coordinator has loaded it.
        """
        members = self.run(_when_elected(partial(self._membership, name)))
        committed = self.committed(name)
        read = committed.keys() | {partition for member in members.members for partition in member.assigned}
        return state_of(members, committed, self.run(self._ends_of(sorted(read))))

    async def _membership(self, name: str) -> Membership:
        coordinator = self._coordinator_of(name)
        if coordinator is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{name}'")
        return await membership(coordinator, name)

    async def _ends_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of those that exist."""
        ends: dict[TopicPartition, int] = {}
        for topic, partition in partitions:
            topic_id = self._image().topic_id(topic)
            if topic_id is not None:
                found = await self._leaders_of(topic_id, [partition])
                ends[TopicPartition(topic, partition)] = found[partition][1]
        return ends

    def transactions(self) -> list[TransactionState]:
        """All transactional ids, sorted. Raises KafkaError.

        After a failure it waits until the next coordinators have loaded them.
        """
        return self.run(_when_elected(self._transactions))

    async def _transactions(self) -> list[TransactionState]:
        topic_id = self._node.image.topic_id(TRANSACTIONS_TOPIC)
        if topic_id is None:
            return []
        partitions = range(self._node.image.topic_partition_count(topic_id))
        coordinators = {id(node): node for node in (self._leader_of(topic_id, one) for one in partitions)}
        found: list[TransactionState] = []
        for node in coordinators.values():
            listed = await node.transactions.list_transactions(ListTransactionsRequest())
            if listed.error_code is not ErrorCode.NONE:
                raise KafkaError(listed.error_code, "the transactions cannot be read")
            for one in listed.transaction_states:
                described = node.transactions.describe(one.transactional_id)
                places = (
                    TopicPartition(topic.topic, index) for topic in described.topics for index in topic.partitions
                )
                found.append(
                    TransactionState(
                        one.transactional_id,
                        described.transaction_state,
                        described.producer_id,
                        described.producer_epoch,
                        tuple(sorted(places)),
                    )
                )
        return sorted(found)

    def counters(self) -> dict[str, int]:
        """The node's counters since its start, by name: records, bytes, flushes; see `klamm.node.counters`."""
        self._check_open()
        return self._node.counters()

    async def _offsets_of(self, group: str) -> tuple[FetchedTopic, ...]:
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            return ()
        fetched: asyncio.Future[FetchedGroup] = asyncio.get_running_loop().create_future()
        coordinator.groups.offset_fetch(FetchGroup(group, None), into(fetched), require_stable=False)
        answer = await fetched
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code), f"the committed offsets of group '{group}' cannot be read")
        return answer.topics

    def _image(self) -> Image:
        self._check_open()
        return self._node.image

    def _check_open(self) -> None:
        """Raises ClusterClosedError, or NodeFailedError when the node has stopped by itself."""
        if os.getpid() != self._process_id:
            text = "this cluster was made in another process: a fork takes none of its threads along. Make one here"
            raise ClusterClosedError(text)
        if not self._nodes.is_open:
            raise self._closed_error()
        for member in self._members.all:
            if member.is_running and member.node.failed.done():
                member.node.failed.result()

    def _closed_error(self) -> ClusterClosedError:
        return ClusterClosedError(f"the cluster in {self.data} is closed")

    @contextlib.contextmanager
    def _until_closed(self) -> Iterator[None]:
        """What fails because the cluster is closed meanwhile fails as that."""
        try:
            yield
        except (KafkaError, NodeFailedError, CancelledError) as error:
            if self._nodes.is_open:
                raise
            raise self._closed_error() from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the nodes' loop, and wait for it. Raises ClusterClosedError, NodeFailedError."""
        try:
            self._check_open()
        except Exception:  # never started, so it has to be stopped; the error is raised
            work.close()
            raise
        outcome = self._nodes.submit(self._while_running(work))
        if outcome is None:
            work.close()
            raise self._closed_error()
        with self._until_closed():
            return outcome.result(START_TIMEOUT_S)

    async def _while_running(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; the reason of a node that stops meanwhile, which might never give one."""
        task = asyncio.ensure_future(work)
        failed = [member.node.failed for member in self._members.all if member.is_running]
        ends: set[asyncio.Future[Any]] = {task, *failed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            next(one for one in failed if one.done()).result()
        return task.result()

    # End

    def close(self) -> None:
        """Stop the nodes after pending requests are answered; a temporary folder is removed. Closing twice is allowed.

        Ctrl-C is raised after they are closed; a second one at once, and they are closed anyway.
        """
        if os.getpid() != self._process_id:
            return
        self._nodes.end()
        self._nodes.wait_for_end()
        self._nodes.ended.result(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._nodes.end()
        closing = asyncio.ensure_future(asyncio.to_thread(self.close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise
