"""A simulated replica: runs the product's driver with simulated files, log, network and event loop.

Every request, response and quorum-state is encoded and decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, assert_never

from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.effects import Effect, ReadRange, SendRequest
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Error,
    FetchResponse,
    Request,
    Response,
)
from klamm.raft.node import RaftNode
from klamm.raft.ports import NotLeaderError, RaftStoppedError
from klamm.raft.replication.reading import with_bytes
from klamm.raft.voters.voter_set import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN, VoterSet, VotersInLog
from klamm.raft.wire.requests import api_key_of, encode_request, versions_of
from klamm.raft.wire.responses import decode_response, encode_response
from klamm.testing.simulator import memory_snapshot
from klamm.testing.simulator.connections import LISTENER, Dialed, SimulatedConnection
from klamm.testing.simulator.crashing import CrashedError
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.fetch_answers import SimulatedAnswers
from klamm.testing.simulator.fetch_stream import FIRST_ID, SimulatedStream
from klamm.testing.simulator.memory_log import MemoryLog
from klamm.testing.simulator.peers import SimulatedPeers
from klamm.testing.simulator.replica_data import CLUSTER, FOLDER, ReplicaData
from klamm.testing.simulator.replica_loop import Call, new_loop
from klamm.testing.simulator.watched_log import WatchedLog

PlayedEvent = (
    events.PeerCrashed
    | events.PeerRefused
    | events.ResignRequested
    | events.KraftUpgradeRequested
    | events.ShutdownRequested
)
Dial = Callable[["SimulatedReplica", int, int, Dialed], None]
FILE_OPERATIONS: Final = 5  # of a write of quorum-state; the process may end at each of them


class DiskWork(NamedTuple):
    """Pending work of the disk, and the function that finishes it."""

    of: str  # quorum-state, log, stream or snapshot
    finish: Callable[[], None]


class WatchedNode(RaftNode):
    """The core, with the effects of the current step."""

    def __init__(self, identity: Identity, voters: VotersInLog, config: RaftConfig, log: MemoryLog, seed: int) -> None:
        super().__init__(identity, voters, config, log, seed)
        self.seen: list[Effect] = []

    def _take_effects(self) -> list[Effect]:
        effects = super()._take_effects()
        self.seen += effects
        return effects


class SimulatedReplica(ReplicaData):
    """Implements the driver's ports `Transport` and `Listener`, and the log's `Watcher`."""

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        config: RaftConfig,
        now_ms: Callable[[], int],
        *,
        directory: str | None = None,
        luck: Callable[[], bool],
        dial: Dial | None = None,
    ) -> None:
        """`luck` decides what survives a power failure. `dial`: requests use connections, which it tries to open."""
        super().__init__(node_id, voters, config, now_ms, directory=directory)
        self._dial = dial
        self._peers: SimulatedPeers | None = None
        self._luck = luck
        self._loop = new_loop(now_ms)
        self._driver: RaftDriver | None = None
        self._requests: RaftRequests | None = None
        self._waiting: dict[int, Callable[[Response | None], None]] = {}
        self._thread: Callable[[], None] | None = None  # that writes quorum-state
        self._is_thread_begun = self._is_flush_begun = False
        self._checks_begun = 0
        self._loaded: tuple[OffsetAndEpoch, int] | None = None  # the state of the snapshot that was fetched last
        self._fault: Exception | None = None
        self._acknowledged_to = -1  # the last offset of the newest proposal that its driver acknowledged in this life
        self._stream = SimulatedStream(self)
        self._is_stream_flush_begun = False
        self._answers = SimulatedAnswers(self, config.fetch_timeout_ms)

    # State

    @property
    def deadline_ms(self) -> int:
        """The next timer of its loop."""
        return self._loop.deadline_ms

    @property
    def reported_high_watermark(self) -> int:
        """See `ReplicaData`: the leased answers may be ahead of the core."""
        return max(self.high_watermark, self._answers.high_watermark) if self.is_up else -1

    @property
    def can_append(self) -> bool:
        """Whether its driver accepts proposals."""
        core = self.core
        return core is not None and core.can_append and self.announced == (core.replica.epoch, self._announced_applied)

    @property
    def _announced_applied(self) -> int:
        return self.announced[1] if self.announced is not None else -1

    def has_acknowledged(self, offset: int) -> bool:
        """Whether its driver has acknowledged the proposal that ends at that offset, or one after it."""
        return offset <= self._acknowledged_to

    # Events

    def start(self, seed: int) -> None:
        """Start a life with the content of the disk."""
        self.life += 1
        self.port = self.next_port
        self._loop = new_loop(self.now_ms)
        identity = Identity(self.key, CLUSTER, self.endpoints)
        node = WatchedNode(identity, VotersInLog(self.voters), self.config, self.log, seed)
        self.core = node
        self._load_latest_snapshot()
        self.loaded_at_start = self.applied
        self._stream = SimulatedStream(self)
        self._answers = SimulatedAnswers(self, self.config.fetch_timeout_ms)
        self._act(lambda: self._start_driver(node, seed))

    def _start_driver(self, node: RaftNode, seed: int) -> None:
        if self._dial is not None:
            self._peers = SimulatedPeers(
                self,
                request_timeout_ms=self.config.request_timeout_ms,
                on_crashed=self._on_peer_crashed,
                on_refused=self._on_peer_refused,
                seed=seed,
            )
        self._driver = RaftDriver(
            node,
            self.log,
            QuorumStateFile(FOLDER, files=self.files),
            self,
            transport=self,
            open_streams=(lambda: self._stream) if self.config.fetches_go_on else None,
            open_answers=(lambda: self._answers) if self.config.fetches_leased else None,
            wall_clock_ms=self.now_ms,
            start_thread=self._start_thread,
        )
        self._requests = RaftRequests(self._driver, self.log, CLUSTER)
        self._driver.start()

    def step(self, event: PlayedEvent) -> None:
        """Pass an event to the driver as a node does."""
        driver = self._running_driver
        match event:
            case events.PeerCrashed(node_id):
                self._act(lambda: driver.on_peer_crashed(node_id))
            case events.PeerRefused(node_id):
                self._act(lambda: driver.on_peer_refused(node_id))
            case events.ResignRequested(epoch):
                self._act(lambda: driver.resign(epoch))
            case events.KraftUpgradeRequested():
                self._act(self._upgrade)
            case events.ShutdownRequested():
                self._act(self._close)
            case _:
                assert_never(event)

    def tick(self) -> None:
        """The clock has reached the next timer, or has jumped."""
        self._act(lambda: None)

    def receive(self, envelope: Envelope) -> None:
        """Receive a message."""
        if envelope.response is None:
            self._act(lambda: self._take_request(envelope))
        elif envelope.life == self.life and self._peers is not None and envelope.connection is not None:
            self._act(partial(self._peers.on_answer, envelope))
        elif envelope.life == self.life:
            self._act(lambda: self._end_request(envelope.correlation_id, envelope.response))

    def fail_request(self, envelope: Envelope) -> None:
        """The connection of a request was lost."""
        if envelope.life == self.life and self._peers is not None and envelope.connection is not None:
            self._act(partial(self._peers.lose, envelope))
        elif envelope.life == self.life:
            self._act(lambda: self._end_request(envelope.correlation_id, None))

    @property
    def has_connections(self) -> bool:
        """Whether its requests use connections."""
        return self._dial is not None

    def lose_connections(self, node_id: int) -> None:
        """That node has closed its connections."""
        if self._peers is not None:
            self._act(partial(self._peers.lose_all_to, node_id))

    def propose(self, values: list[bytes]) -> int | None:
        """Propose a batch; returns its last offset, or None if the driver refuses it."""
        offsets: list[int] = []

        def act() -> None:
            driver = self._running_driver
            try:
                offset = driver.propose(values, self.epoch)
            except (NotLeaderError, RaftStoppedError):
                return
            offsets.append(offset)
            driver.wait_committed(offset).add_done_callback(partial(self._note_acknowledged, offset))

        self._act(act)
        return offsets[0] if offsets else None

    def disk_work(self) -> list[DiskWork]:
        """The pending work of its disk, to be finished one by one."""
        work: list[DiskWork] = []
        if self._thread is not None:
            work.append(DiskWork("quorum-state", self._finish_thread))
        if self.log.flushing_to is not None:
            work.append(DiskWork("log", self._finish_flush))
        if self._stream.flush_target is not None:
            work.append(DiskWork("stream", self._finish_stream_flush))
        work += [DiskWork("snapshot", self._finish_check)] * len(self.log.checks)
        return work

    def begin_disk_work(self) -> list[Callable[[], None]]:
        """The disk work that the driver has started since the last call, as functions that finish it."""
        found: list[Callable[[], None]] = []
        if self._thread is not None and not self._is_thread_begun:
            self._is_thread_begun = True
            found.append(self._finish_thread)
        while self._checks_begun < len(self.log.checks):
            self._checks_begun += 1
            found.append(self._finish_check)
        if self.log.flushing_to is not None and not self._is_flush_begun:
            self._is_flush_begun = True
            found.append(self._finish_flush)
        if self._stream.flush_target is not None and not self._is_stream_flush_begun:
            self._is_stream_flush_begun = True
            found.append(self._finish_stream_flush)
        return found

    def crash(self, keep_records: int | None, *, write_survives: bool) -> None:
        """End this life.

        `keep_records`: how many unflushed records survive a power failure; None if only the process dies and the page
        cache survives. `write_survives`: a pending write of quorum-state may have reached any of its steps.
        """
        if self._thread is not None and write_survives:
            self.files.operations_left = sum(self._luck() for _ in range(FILE_OPERATIONS))
            self._thread()
            self.files.operations_left = None
        if keep_records is not None:
            self.files.lose_power(self._luck)
        self._peers = None
        self._loop.forget()
        self._driver = self._requests = self._thread = self._loaded = self._fault = None
        self._is_thread_begun = self._is_flush_begun = self._is_stream_flush_begun = False
        self._checks_begun = 0
        self._waiting, self._acknowledged_to = {}, -1
        self._end_life(keep_records)

    # The driver's ports

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """See `klamm.raft.ports.Transport`."""
        if self._peers is not None:
            self.handed_out.append(Envelope(self.id, request.to, request.correlation_id, self.life, request.request))
            self._peers.send(request, on_done)
            return
        self.before_change()
        self._waiting[request.correlation_id] = on_done
        self.post(request)

    def on_commit(self, high_watermark: int) -> None:
        """See `klamm.raft.ports.Listener`."""
        self.before_change()
        self._fold(high_watermark)

    def on_leader(self, epoch: int) -> None:
        """See `klamm.raft.ports.Listener`."""
        self.before_change()
        self.announced = epoch, self.applied

    def on_not_leader(self, epoch: int) -> None:
        """See `klamm.raft.ports.Listener`."""

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """The driver writes no snapshots: the world does."""

    async def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """See `klamm.raft.ports.Listener`."""
        if self.log.received is None:
            raise ValueError(f"snapshot {snapshot_id} is not there")
        content = memory_snapshot.decode_unchecked(self.log.received.data)
        self._loaded = content.id, content.state

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """See `klamm.raft.ports.Listener`."""
        self.before_change()
        if self._loaded is None or self._loaded[0] != snapshot_id:
            raise AssertionError(f"{self.id} installed snapshot {snapshot_id}, and had loaded {self._loaded}")
        self.applied, self.state = snapshot_id.offset, self._loaded[1]
        self.installed_count += 1

    def on_fault(self, error: Exception) -> None:
        """Report it to the world: no simulated fault excuses a stop of the driver."""
        self._fault = error

    # HostProcess of the stream

    def call_later(self, delay_ms: int, act: Callable[[], None]) -> Call:
        """See `HostProcess`."""
        return self._loop.call_later(delay_ms / 1000, act)

    def make_readable(self, fd: int) -> None:
        """See `HostProcess`: another event may come before the loop reacts."""
        if self._luck():
            self._loop.make_readable(fd)
        else:
            self._loop.call_later(0.002, self._loop.make_readable, fd)

    # Owner of the connections

    def dial(self, node_id: int, port: int, on_dialed: Dialed) -> None:
        """See `connections.Owner`."""
        if self._dial is None:
            raise RuntimeError(f"replica {self.id} makes no connections")
        self._dial(self, node_id, port, lambda life: self._act(lambda: on_dialed(life)))

    def ask(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        """See `connections.Owner`."""
        self.before_change()
        by = connection.number, connection.life
        self.outbox.append(Envelope(self.id, connection.node_id, correlation_id, self.life, request, connection=by))

    # HostProcess of the answers

    def give(self, asked: Envelope, response: FetchResponse, read: ReadRange | None) -> None:
        """See `fetch_answers.HostProcess`."""
        self.before_change()
        version = versions_of(asked.request)[1]
        body = encode_response(with_bytes(self.log, response, read), version, LISTENER)
        self.outbox.append(asked.answered(decode_response(asked.request, version, body, LISTENER)))

    def pass_to_core(self, asked: Envelope) -> None:
        """See `fetch_answers.HostProcess`: another event may come before the loop receives it."""
        if self._luck():
            self._loop.call_soon(self._ask_driver, asked)
        else:
            self._loop.call_later(0.002, self._ask_driver, asked)

    # The log's watcher

    def before_change(self) -> None:
        """See `Watcher`."""
        if self.crash_after_effects is not None:
            self._maybe_crash()

    def cut_chains(self, offset: int) -> None:
        """See `Watcher`."""
        del self.chains[offset:]

    def damaged(self, data: bytes) -> bytes:
        """See `Watcher`."""
        return self.damage(data)

    # Inside

    def _new_log(self) -> MemoryLog:
        return WatchedLog(self)

    @property
    def _running_driver(self) -> RaftDriver:
        if self._driver is None:
            raise RuntimeError(f"replica {self.id} is down")
        return self._driver

    def run(self, act: Callable[[], None]) -> None:
        """Run `act` in its process, on its loop."""
        self._act(act)

    def _act(self, act: Callable[[], None]) -> None:
        """Run `act` in its process, and everything that follows at once.

        Raises CrashedError and errors of the driver.
        """
        core = self.core
        if isinstance(core, WatchedNode):
            self.effects = core.seen = []
        self.handed_out = []
        self._loop.run(act)
        if self.is_dying:
            raise CrashedError  # a task caught the exception
        if self._fault is not None:
            raise self._fault

    def _take_request(self, envelope: Envelope) -> None:
        request = envelope.request
        if isinstance(request, ApiVersionsRequest):
            versions = ApiVersionsResponse(Error.NONE, (KRAFT_VERSION_MIN, KRAFT_VERSION_MAX))
            self.outbox.append(envelope.answered(versions))
        elif not self._answers.on_fetch(envelope):
            self._ask_driver(envelope)

    def _ask_driver(self, envelope: Envelope) -> None:
        request = envelope.request
        version = versions_of(request)[1]

        def give(make: Callable[[], bytes]) -> None:
            self.before_change()
            self.outbox.append(envelope.answered(decode_response(request, version, make(), LISTENER)))

        if self._requests is None:
            raise RuntimeError(f"replica {self.id} is down")
        with contextlib.suppress(RaftStoppedError):  # the driver is closed, and the process is about to end
            self._requests.handle(api_key_of(request), version, encode_request(request, version), LISTENER, give)

    def _end_request(self, correlation_id: int, response: Response | None) -> None:
        if correlation_id < FIRST_ID:
            self._stream.on_answer(correlation_id, response)
            return
        on_done = self._waiting.pop(correlation_id, None)
        if on_done is not None:
            on_done(response)

    def _on_peer_crashed(self, node_id: int) -> None:
        self._running_driver.on_peer_crashed(node_id)

    def _on_peer_refused(self, node_id: int) -> None:
        self._running_driver.on_peer_refused(node_id)

    def _note_acknowledged(self, offset: int, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._acknowledged_to = max(self._acknowledged_to, offset)

    def _upgrade(self) -> None:
        with contextlib.suppress(NotLeaderError):  # its leadership was not announced yet
            self._running_driver.upgrade_kraft_version(self.epoch)

    def _close(self) -> None:
        closing = self._loop.create_task(self._running_driver.close())
        closing.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        task.result()
        if self._peers is not None:
            self._peers.close()
        self.has_handed_over = True

    def _start_thread(self, run: Callable[[], None]) -> None:
        self.before_change()
        self._thread = run

    def _finish_thread(self) -> None:
        if self._thread is None:
            raise RuntimeError(f"replica {self.id} writes no quorum-state")
        run, self._thread, self._is_thread_begun = self._thread, None, False
        self._act(run)

    def _finish_flush(self) -> None:
        self._is_flush_begun = False
        self._act(self._end_flush)

    def _end_flush(self) -> None:
        self.log.finish_flush()
        self._answers.on_flushed(self.log.flushed_offset)

    def _finish_stream_flush(self) -> None:
        self._is_stream_flush_begun = False
        self._act(self._stream.finish_flush)

    def _finish_check(self) -> None:
        self._checks_begun = max(self._checks_begun - 1, 0)
        self._act(self.log.finish_check)
