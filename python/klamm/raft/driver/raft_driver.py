"""Runs the quorum core with a real log, file, network and clock. Only `raft.driver` knows asyncio.

Group commit without a linger: proposals are appended at once, and one flush is in flight. The next flush covers
everything that is appended meanwhile, and one wake-up per flush notifies all waiters.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, assert_never

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft import effects as fx
from klamm.raft.description import describe
from klamm.raft.driver.delivery import Delivery
from klamm.raft.driver.election_writer import ElectionWriter
from klamm.raft.driver.fetch_streaming import FetchStreaming
from klamm.raft.driver.flusher import Flusher
from klamm.raft.driver.leased_fetches import LeasedFetches
from klamm.raft.driver.peer_messages import PeerMessages
from klamm.raft.driver.quorum_state import read_election
from klamm.raft.driver.snapshots import SnapshotDriver
from klamm.raft.election.role_states import NEVER_MS
from klamm.raft.log.metadata_log import MetadataLog, MetadataLogError
from klamm.raft.log.snapshots import SnapshotConfig
from klamm.raft.messages import FetchRequest, Request, Response
from klamm.raft.node import RaftNode
from klamm.raft.ports import (
    ElectionStore,
    FetchAnswers,
    FetchEnd,
    FetchFailedError,
    FetchStreams,
    Listener,
    NotLeaderError,
    RaftStoppedError,
    ReplyTo,
    Transport,
)
from klamm.raft.replica_state import InvariantError
from klamm.raft.replication.waiters import CommitWaiters
from klamm.raft.voters.voter_set import Endpoint, VotersInLog

if TYPE_CHECKING:
    from klamm.raft.description import QuorumDescription

logger = logging.getLogger("klamm.raft")
P = ParamSpec("P")

# A core that is due again and again at one instant will never be done: better stop than spin.
TICKS_AT_ONCE_MAX: Final = 1000


class RaftDriver:
    """One running replica. Must be created and used on the loop's thread."""

    def __init__(
        self,
        node: RaftNode,
        log: MetadataLog,
        store: ElectionStore,
        listener: Listener,
        *,
        transport: Transport | None = None,
        open_streams: Callable[[], FetchStreams] | None = None,
        open_answers: Callable[[], FetchAnswers] | None = None,
        snapshot_config: SnapshotConfig | None = None,
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_leader_change: Callable[[int | None, int], None] = lambda leader_id, epoch: None,
        start_thread: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`open_streams` is called at most once, when a fetch may be streamed (`RaftConfig.fetches_go_on`).

        `open_answers` is called when a fetch may be answered (`RaftConfig.fetches_leased`), until it returns some.

        `on_leader_change` receives another replica's leadership and its epoch; None while no leader is known.
        `start_thread` runs the writer of quorum-state outside the loop.
        """
        self._node, self._log, self._store = node, log, store
        self._delivery = Delivery(listener, self.resign, self.fail)
        self._streaming = FetchStreaming(open_streams, node.replica.requests.is_waited_for, self._on_engine_news)
        self._leased = LeasedFetches(open_answers, node.fetch_lease, node.counts, self._on_engine_news)
        self._messages = PeerMessages(node, transport, self._streaming.take_over, self._on_answer)
        self._wall_clock_ms = wall_clock_ms
        self._on_leader_change = on_leader_change
        self._loop = asyncio.get_running_loop()
        self._clock = LoopClock()
        self._now_ms = self._clock.now_ms
        self._led_epoch: int | None = None
        self._waiters = CommitWaiters()
        self._events: deque[Callable[[int], list[fx.Effect]]] = deque()
        self._is_stepping = False
        self._is_release_scheduled = False
        self._election_writer = ElectionWriter(store, self._clock, self._on_election_written, start_thread)
        self._flusher = Flusher(log, self._clock, self._on_flushed, never_votes=node.replica.config.never_votes)
        self._disk_is_done = asyncio.Event()  # set whenever a piece of disk work has ended
        self._timer = DeadlineTimer(self._clock, lambda at_ms: self._step(lambda now_ms: []))
        self._snapshots = SnapshotDriver(
            log,
            self._delivery,
            snapshot_config or SnapshotConfig(),
            wall_clock_ms,
            lambda effect, is_valid: self._step(self._node.on_snapshot_checked, effect.attempt, is_valid),
        )
        self._fault: Exception | None = None
        self._is_stopped = False
        self._handed_over = asyncio.Event()

    # For the node

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; -1 while unknown."""
        return self._node.replica.high_watermark

    @property
    def epoch(self) -> int:
        """The highest epoch this replica knows of."""
        return self._node.replica.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of that epoch, if it is known."""
        return self._node.replica.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of that leader, as far as this replica knows them."""
        return self._node.replica.leader_endpoints

    def start(self) -> None:
        """Read quorum-state and take part. Raises QuorumStateError, OSError, and what stops the replica at once."""
        self._flusher.start()
        replica = self._node.replica
        has_peers = replica.is_voter and not replica.voters.is_only_voter(replica.key)
        self._step(self._node.on_start, read_election(self._store, self._log.end_offset, has_peers=has_peers))
        if self._fault is not None:
            raise self._fault
        self._snapshots.schedule_clean()

    def propose(self, records: Sequence[bytes], epoch: int) -> int:
        """Append the records as one batch of the epoch that this replica leads; returns their last offset.

        They are in the log when this returns, and committed when `wait_committed` of that offset is done. Raises
        NotLeaderError, RaftStoppedError; ValueError if they do not fit in a batch.
        """
        if self._led_epoch != epoch:
            self._check_running()
            raise NotLeaderError(f"epoch {epoch} is not led by this replica; it leads {self._led_epoch}")
        try:
            last_offset = self._log.append(records, epoch, self._wall_clock_ms())
        except MetadataLogError as error:
            self.fail(error)
            raise self._stopped_error() from None
        self._step(self._node.on_append)
        self._leased.on_append()
        if self._led_epoch != epoch:  # its time had passed: a process that was frozen wakes up with a late step
            self._check_running()
            raise NotLeaderError(f"epoch {epoch} ended with the record at {last_offset}, which may survive or not")
        return last_offset

    def upgrade_kraft_version(self, epoch: int) -> None:
        """Write kraft.version 1 with the voters to the log of the epoch that this replica leads; later proposals follow
        it in the log. Raises NotLeaderError, RaftStoppedError.
        """
        if self._led_epoch != epoch:
            self._check_running()
            raise NotLeaderError(f"epoch {epoch} is not led by this replica; it leads {self._led_epoch}")
        self._step(self._node.on_kraft_upgrade)

    def kraft_upgrade_refusal(self) -> str | None:
        """The reason why kraft.version 1 is not possible; None if it is."""
        return self._node.kraft_upgrade_refusal()

    @property
    def voter_ids(self) -> frozenset[int]:
        """The node ids of the voters in force."""
        return frozenset(self.voters.voters.ids)

    @property
    def voters(self) -> VotersInLog:
        """The voter set in force, committed or not."""
        return self._node.replica.voters_in_log

    def voters_below(self, offset: int) -> VotersInLog:
        """The voter set and the kraft.version that the log below `offset` brings."""
        return self._node.replica.voter_history.below(offset)

    def wait_committed(self, offset: int) -> asyncio.Future[None]:
        """A future that is done once the record at `offset`, appended by this leader, is committed.

        Fails with NotLeaderError when leadership ends first (the record may survive or not), or RaftStoppedError.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if self._is_stopped:
            future.set_exception(self._stopped_error())
        elif offset < self.high_watermark:
            future.set_result(None)
        elif self._led_epoch is None:
            future.set_exception(NotLeaderError(f"offset {offset} cannot be awaited: this replica leads no epoch"))
        else:
            self._waiters.add(offset, future)
        return future

    def handle_request(self, request: Request, reply: ReplyTo) -> None:
        """Process another replica's request; `reply` is called once, now or later, or never if the replica stops."""
        self._check_running()
        self._step(self._node.on_request, self._messages.register(reply), request)
        if isinstance(request, FetchRequest) and not self._is_stepping and not self._is_stopped:
            self._leased.on_fetch(request.replica)

    def on_peer_crashed(self, node_id: int) -> None:
        """A replica closed its connection and refuses a new one (docs/decisions/0014)."""
        if not self._is_stopped:
            self._step(self._node.on_peer_crashed, node_id)

    def on_peer_refused(self, node_id: int) -> None:
        """A replica refuses connections, whether or not it had one."""
        if not self._is_stopped:
            self._step(self._node.on_peer_refused, node_id)

    def is_majority_down(self) -> bool:
        """Whether so many voters refuse connections that the others cannot elect a leader."""
        return self._node.is_majority_down()

    @property
    def is_followed(self) -> bool:
        """Whether this replica leads others: voters, or observers that have fetched recently."""
        return self._node.is_followed(self._now_ms())

    def describe_quorum(self) -> QuorumDescription:
        """The quorum as its leader sees it. Raises NotLeaderError elsewhere."""
        if self._leased.is_on:
            self._step(lambda now_ms: [])  # it has heard of all fetches then
        description = describe(self._node.replica, self._now_ms(), self._wall_clock_ms())
        if description is None:
            raise NotLeaderError(f"replica {self._node.replica.id} does not lead, {self.leader_id} may")
        return description

    def resign(self, epoch: int) -> None:
        """Resign from `epoch`."""
        self._step(self._node.on_resign, epoch)

    async def close(self, timeout_ms: int = 5000, *, hand_over: bool = True) -> None:
        """Hand over if this replica leads, finish disk work, stop. It stops after the timeout in any case.

        Without `hand_over` the other replicas are not notified, as when the process is killed; disk work is finished.
        """
        if hand_over:
            self._step(self._node.on_shutdown)
        else:
            self._handed_over.set()
        if not self._is_stopped:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._handed_over.wait()
                    await self._until_disk_is_idle()
            except TimeoutError:
                logger.warning(
                    "this replica stops without a hand-over, or with disk work left: %d ms have passed", timeout_ms
                )
        self._stop()

    # Effects

    def _step(self, handler: Callable[Concatenate[int, P], list[fx.Effect]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Pass an event and the due ticks to the core, and carry out the effects. Any fault stops the replica.

        A listener may propose while effects are carried out: that event waits until all of them are.
        """
        self._events.append(lambda now_ms: handler(now_ms, *args, **kwargs))
        if self._is_stepping or self._is_stopped:
            return
        self._is_stepping = True
        try:
            self._take_fetched()
            self._take_answered()
            while self._events:
                self._apply_all(self._events.popleft()(self._now_ms()))
                self._tick()
            self._schedule_flush()  # first of all: it wakes other replicas, which also want the processor
            if not self._is_release_scheduled:
                self._messages.release()
            self._let_go_on()
            self._leased.revoke_if_outdated()
            if not self._is_release_scheduled:
                self._leased.notify_voters()
        except Exception as error:  # a replica in an unknown state must not continue
            self.fail(error)
            return
        finally:
            self._is_stepping = False
        self._election_writer.write()
        deadline_ms = self._node.deadline_ms
        self._timer.arm(None if deadline_ms == NEVER_MS else deadline_ms)

    def _tick(self) -> None:
        for _ in range(TICKS_AT_ONCE_MAX):
            now_ms = self._now_ms()
            if self._node.deadline_ms > now_ms:
                return
            self._apply_all(self._node.on_tick(now_ms))
        raise InvariantError(f"replica {self._node.replica.id} is due without end as {self._node.replica.role.value}")

    def _apply_all(self, effects: list[fx.Effect]) -> None:
        self._leased.revoke_before(effects)
        for effect in effects:
            self._apply(effect)

    def _apply(self, effect: fx.Effect) -> None:
        match effect:
            case fx.HighWatermarkAdvanced(offset):
                self._on_high_watermark(offset)
            case fx.PersistElection():
                self._election_writer.take(effect)
            case fx.AppendControl(epoch, records):
                self._log.append_control(records, epoch, self._wall_clock_ms())
            case fx.AppendFetched():
                self._append_fetched(effect)
            case fx.TruncateLog(offset):
                end = self._log.end_offset
                logger.info("metadata log truncated from %d to %d: it diverges from the leader's", end, offset)
                self._log.truncate_to(offset)
            case fx.AppendSnapshotSlice(snapshot_id, position, data):
                self._log.append_snapshot_slice(snapshot_id, position, data)
            case fx.CheckSnapshot():
                self._snapshots.check(effect, self.leader_id)
            case fx.InstallSnapshot(snapshot_id):
                self._snapshots.install(snapshot_id)
            case fx.DropSnapshot():
                self._snapshots.drop()
            case fx.SendRequest() | fx.Reply():
                self._messages.hold(effect)
            case fx.VotersChanged(voters):
                logger.info("kraft.version %d, voters %s", voters.kraft_version, list(voters.voters.ids))
            case fx.BecameLeader(epoch):
                self._on_leadership(epoch)
            case fx.LostLeadership(epoch):
                self._on_lost_leadership(epoch)
            case fx.LeaderChanged(leader_id, epoch):
                logger.info("epoch %d, leader %s", epoch, "unknown" if leader_id is None else leader_id)
                self._notify_leader(leader_id, epoch)
            case fx.ShutdownCompleted():
                self._handed_over.set()
            case _:
                assert_never(effect)

    def _append_fetched(self, effect: fx.AppendFetched) -> None:
        try:
            self._log.append_fetched(effect.batches, effect.max_epoch)
        except ValueError as error:
            logger.error("batches from leader %s refused, and asked for again: %s", self.leader_id, error)

    def _on_high_watermark(self, offset: int) -> None:
        self._leased.raise_high_watermark(offset)
        self._delivery.on_commit(offset)
        if self._waiters.complete_below(offset) and not self._is_release_scheduled:
            # Callers that waited for the commit run in the next turn of the loop, before later messages of the core.
            self._messages.release()
            self._is_release_scheduled = True
            self._loop.call_soon(self._release_later)
        if not self._delivery.is_behind:  # a snapshot holds all that is committed below its offset
            self._snapshots.on_high_watermark(offset)

    def _notify_leader(self, leader_id: int | None, epoch: int) -> None:
        try:
            self._on_leader_change(leader_id, epoch)
        except Exception:  # a listener's exception must not stop the replica
            logger.exception("the leader of epoch %d could not be made known", epoch)

    def _on_leadership(self, epoch: int) -> None:
        logger.info("leading epoch %d", epoch)
        self._led_epoch = epoch
        self._delivery.on_leader(epoch)

    def _on_lost_leadership(self, epoch: int) -> None:
        logger.info("no longer leading epoch %d", epoch)
        self._led_epoch = None
        self._delivery.on_not_leader(epoch)
        text = f"leadership of epoch {epoch} ended before the record was seen committed"
        self._waiters.fail_all(NotLeaderError(text))

    def _release_later(self) -> None:
        self._is_release_scheduled = False
        self._step(lambda now_ms: [])

    # Peers

    def _on_answer(self, correlation_id: int, response: Response | None) -> None:
        if response is None:
            self._step(self._node.on_request_failed, correlation_id)
        else:
            self._step(self._node.on_response, correlation_id, response)

    # Streamed fetches

    def _take_fetched(self) -> None:
        """Hold the stream, and report its progress to the core, which then decides with the current log."""
        found = self._streaming.hold()
        if found is None:
            return
        correlation_id, news = found
        if news.fetched is not None:
            self._apply_all(self._node.on_streamed_fetches(self._now_ms(), correlation_id, news.fetched))
        if news.end is not None:
            self._events.appendleft(self._event_of_end(correlation_id, news.end))
        self._tick()

    def _event_of_end(self, correlation_id: int, end: FetchEnd) -> Callable[[int], list[fx.Effect]]:
        if not isinstance(end, FetchFailedError):
            return lambda now_ms: self._node.on_response(now_ms, correlation_id, end)
        if end.is_of_disk:
            raise MetadataLogError(str(end))
        logger.info("fetches from leader %s do not go on: %s", self.leader_id, end)
        return lambda now_ms: self._node.on_request_failed(now_ms, correlation_id)

    def _let_go_on(self) -> None:
        if self._streaming.release():
            self._schedule_flush()  # for the records that it left unflushed
        alone = self._streaming.begin()
        if alone is not None:
            self._messages.send(alone)

    def _on_engine_news(self) -> None:
        self._step(lambda now_ms: [])

    # Fetches that are answered without the core

    def _take_answered(self) -> None:
        """Report the answered fetches to the core before its next decision."""
        taken = self._leased.take()
        if taken is not None:
            self._apply_all(self._node.on_leased_fetches(self._now_ms(), *taken))
            self._tick()

    # Disk

    def _schedule_flush(self) -> None:
        if self._streaming.is_on and not self._node.replica.config.never_votes:
            return  # the stream flushes its own appends
        self._flusher.schedule(is_leading=self._led_epoch is not None)

    def _on_flushed(self, error: str | None) -> None:
        self._disk_is_done.set()
        if error is not None:
            self.fail(MetadataLogError(error))  # which says what could not be done, and to which file
        else:
            self._step(self._node.on_flushed)

    def _on_election_written(self, ticket: int, error: str | None) -> None:
        self._disk_is_done.set()
        if error is not None:
            self.fail(MetadataLogError(error))
        else:
            self._step(self._node.on_persisted, ticket)

    async def _until_disk_is_idle(self) -> None:
        """Wait for the writes in progress, and for flushes while the replica runs: a stopped one begins none."""
        while self._election_writer.is_writing or (self._flusher.is_busy and not self._is_stopped):
            self._flusher.flush_now()
            self._disk_is_done.clear()
            await self._disk_is_done.wait()

    # End

    def fail(self, error: Exception) -> None:
        """Stop permanently: the state of the replica cannot be trusted."""
        if self._is_stopped:
            return
        self._fault = error
        # Where the world did wrong, the message says all there is to know.
        is_ours = not isinstance(error, RaftStoppedError | MetadataLogError)
        logger.error("replica %d stops: %s", self._node.replica.id, error, exc_info=error if is_ours else None)
        self._stop()
        self._delivery.on_fault(error)

    def _stop(self) -> None:
        self._is_stopped = True
        self._led_epoch = None
        self._timer.cancel()
        self._flusher.stop()
        self._streaming.close()
        self._leased.close()
        self._snapshots.stop()
        self._delivery.close()
        self._handed_over.set()
        self._disk_is_done.set()
        self._waiters.fail_all(self._stopped_error())

    def _stopped_error(self) -> RaftStoppedError:
        return RaftStoppedError(f"the replica has stopped: {self._fault or 'it was closed'}")

    def _check_running(self) -> None:
        if self._is_stopped:
            raise self._stopped_error()
