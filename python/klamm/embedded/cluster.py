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
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

from klamm._engine.metadata import Image
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.embedded.cluster_reader import HEARD_POLL_S, ClusterReader
from klamm.embedded.groups import GroupState
from klamm.embedded.members import Members, lost_between, plan
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
from klamm.embedded.rows import read_committed, rows_below
from klamm.embedded.transactions import TransactionState
from klamm.node.node import Node, NodeFailedError
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.protocol.topic_partition import TopicPartition

T = TypeVar("T")

START_TIMEOUT_S = 30.0

# Without any handler Python prints warnings to stderr, which a guest does not do; its host may add handlers of its own.
logging.getLogger("klamm").addHandler(logging.NullHandler())


class StoredRecord(NamedTuple):
    """One record of a topic; `partition` and `offset` say where it is."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


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
        return self._members.best_informed

    @property
    def _reader(self) -> ClusterReader:
        return ClusterReader(self._members)

    # Its properties

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for clients: host:port, with commas between."""
        return ",".join("{}:{}".format(*client_address(member.node)) for member in self._members.brokers)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers, in the order of their ids."""
        return tuple(Broker(self.run, member) for member in self._members.brokers)

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
            for member in self._members.brokers
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
            leaders = self.run(self._reader.leaders_of(topic_id, indexes)).items()
            rows = [(index, rows_below(leader, topic_id, index, end)) for index, (leader, end) in leaders]
            if isolation_level == "read_committed":
                rows = [(index, iter(read_committed(found))) for index, found in rows]
            return [
                StoredRecord(index, at, key, value)
                for index, found in rows
                for at, key, value, _, is_control in found
                if not is_control
            ]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group. Raises KafkaError.

        After a failure it waits until the next coordinator has loaded them.
        """
        return self.run(self._reader.committed(group))

    def group(self, name: str) -> GroupState:
        """A group with its members, epochs, targets and lag. Raises KafkaError, also if there is no such group.

        After a failure it waits until the next coordinator has loaded it.
        """
        return self.run(self._reader.group(name))

    def transactions(self) -> list[TransactionState]:
        """All transactional ids, sorted. Raises KafkaError.

        After a failure it waits until the next coordinators have loaded them.
        """
        return self.run(self._reader.transactions())

    def counters(self) -> dict[str, int]:
        """The node's counters since its start, by name: records, bytes, flushes; see `klamm.node.counters`."""
        self._check_open()
        return self._node.counters()

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
        """Raise failures that are caused by a concurrent close as ClusterClosedError."""
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
