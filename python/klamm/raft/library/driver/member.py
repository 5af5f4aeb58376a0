"""The parts of one replica: the log, the raft driver, the state, and requests of the other replicas."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm.raft.config import Identity
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.serving import Give, RaftRequests
from klamm.raft.effects import Read, SendRequest
from klamm.raft.library.calls import (
    Call,
    Kind,
    Reply,
    Status,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
)
from klamm.raft.library.driver.applying import Applier
from klamm.raft.library.driver.commands import Commands
from klamm.raft.library.driver.config import ReplicaConfig
from klamm.raft.library.driver.directory_files import DirectoryFiles
from klamm.raft.library.driver.leadership import Leadership, LeadershipView
from klamm.raft.library.driver.membership import Membership
from klamm.raft.library.driver.network import Network, UnreachableError
from klamm.raft.library.driver.reads import ReadIndexes
from klamm.raft.library.entries import EntryError, decode
from klamm.raft.library.sessions import ReplicatedState
from klamm.raft.log.control_records import snapshot_head
from klamm.raft.log.metadata_log import NOTHING, OffsetAndEpoch
from klamm.raft.messages import ApiVersionsRequest, ApiVersionsResponse, Error, Request, Response
from klamm.raft.node import RaftNode
from klamm.raft.ports import NotLeaderError, RaftStoppedError
from klamm.raft.replication.reading import with_bytes
from klamm.raft.voters.quorum import majority_size
from klamm.raft.voters.voter_set import (
    KRAFT_VERSION_MAX,
    KRAFT_VERSION_MIN,
    Endpoint,
    ReplicaKey,
    VoterSet,
    VotersInLog,
)

logger = logging.getLogger("klamm.raft")

LISTENER: Final = "RAFT"
"""The listener name of voters' addresses in the log."""
ANSWER_SLACK_S: Final = 1.0


class Member:
    """Implements `Listener` for the driver, `Service` for the others, `Appender` and `Confirmer` for its callers."""

    def __init__(
        self,
        home: DirectoryFiles,
        state: ReplicatedState,
        network: Network,
        *,
        node_id: int,
        cluster: str,
        endpoints: tuple[Endpoint, ...],
        static_voters: VoterSet,
        config: ReplicaConfig,
        on_progress: Callable[[int], None],
    ) -> None:
        self._home, self._network, self._cluster, self._config = home, network, cluster, config
        self._log = home.log
        self.leadership = LeadershipView()
        self.commands = Commands(self, self.leadership, state, in_flight_max=config.in_flight_max)
        self.reads = ReadIndexes(self, self.leadership)
        self.applier = Applier(
            home.log, state, on_applied=self.commands.on_applied, on_progress=on_progress, on_fault=self._on_apply_fault
        )
        self.fault: Exception | None = None
        identity = Identity(ReplicaKey(node_id, home.directory_id), cluster, endpoints)
        seed = int.from_bytes(os.urandom(8), "big")
        self.node = RaftNode(identity, VotersInLog(static_voters), config.raft, home.log, seed)
        self.driver = RaftDriver(
            self.node,
            home.log,
            QuorumStateFile(home.log_directory, is_volatile=not config.flush),
            self,
            transport=network,
            snapshot_config=config.snapshots,
            on_leader_change=self._on_leader_change,
        )
        self.membership = Membership(self.node, self, self.leadership)
        self._raft_requests = RaftRequests(self.driver, home.log, cluster)
        self._led_epoch: int | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Load the newest snapshot, listen, and join the quorum."""
        latest = self._log.latest_snapshot_id
        if latest is not None and latest != NOTHING:
            await asyncio.to_thread(self.applier.restore, latest)
        await self._network.open(self)
        self.driver.start()

    async def close(self, timeout_s: float) -> None:
        """Hand over, stop, and close the log."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.driver.close(timeout_ms=int(timeout_s * 1000))
        finally:
            self._stop(RaftStoppedError("the replica was closed"))
            await self._network.close()
            await asyncio.to_thread(self._home.close)

    def _stop(self, fault: Exception) -> None:
        if self.fault is None:
            self.fault = fault
            self.commands.stop(fault)
            self.reads.stop(fault)
            self.applier.stop(fault)

    # Listener

    def on_commit(self, high_watermark: int) -> None:
        """Everything below is committed."""
        self.applier.commit(high_watermark)

    def on_leader(self, epoch: int) -> None:
        """This replica leads."""
        self._led_epoch = epoch
        self._lead(Leadership(self.node.replica.id, epoch, is_self=True))

    def on_not_leader(self, epoch: int) -> None:
        """This replica is not the leader any more."""
        self._led_epoch = None
        self._lead(Leadership(None, epoch))

    def _on_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self._lead(Leadership(leader_id, epoch))

    def _lead(self, leadership: Leadership) -> None:
        self.leadership.change(leadership)
        if leadership.leader_id is not None:
            self.commands.on_leader_change()

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None]:
        """Write the current state."""
        head = snapshot_head(self.driver.voters_below(snapshot_id.offset))
        return self.applier.hold_snapshot(snapshot_id, head)

    async def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Read the leader's snapshot that was received."""
        await self.applier.load(snapshot_id)

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins with the leader's snapshot, and so does the state."""
        self.applier.install(snapshot_id)
        self.commands.on_restored()

    def on_fault(self, error: Exception) -> None:
        """The replica stopped for good."""
        self._stop(RaftStoppedError(f"the replica has stopped: {error}"))

    def _on_apply_fault(self, error: Exception) -> None:
        self.driver.fail(error)

    # Service

    def handle_raft(self, request: Request, reply: Callable[[Response], None]) -> None:
        """Process a raft request."""

        if isinstance(request, ApiVersionsRequest):  # over an in-process network there is no server that answers it
            reply(ApiVersionsResponse(Error.NONE, (KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)))
            return

        def answer(response: Response, read: Read | None) -> None:
            reply(with_bytes(self._log, response, read))

        if self.fault is None:
            self.driver.handle_request(request, answer)

    def on_peer_crashed(self, node_id: int) -> None:
        """A replica's process has crashed: if it was the leader, another is elected without waiting for a timeout."""
        self.driver.on_peer_crashed(node_id)

    def on_peer_refused(self, node_id: int) -> None:
        """A replica's connections are refused: a leader that shuts down does not wait for it."""
        self.driver.on_peer_refused(node_id)

    def handle_encoded(self, api_key: int, version: int, body: bytes, give: Give) -> None:
        """Process an encoded raft request. Raises MalformedRequest."""
        if self.fault is None:
            self._raft_requests.handle(api_key, version, body, LISTENER, give)

    async def handle_call(self, body: bytes) -> bytes:
        """Answer a request of ours. Raises CallError."""
        return encode_reply(await self._answer(decode_call(body)))

    async def _answer(self, call: Call) -> Reply:
        if call.cluster != self._cluster:
            return Reply(Status.WRONG_CLUSTER)
        if call.kind is Kind.CONFIRM:
            return Reply(Status.OK, self.driver.epoch)
        if self._led_epoch is None:
            return Reply(Status.NOT_LEADER)
        if call.kind is Kind.READ_INDEX:
            return await self._answer_read_index()
        if call.kind is Kind.UPGRADE:
            return Reply(Status.OK, await self.upgrade_quorum(self.node.replica.id))
        try:
            for record in call.records:
                decode(record)  # what no replica can apply must not get into the log
            self.append(call.records)
        except (EntryError, ValueError):
            return Reply(Status.INVALID)
        except (NotLeaderError, RaftStoppedError):
            return Reply(Status.NOT_LEADER)
        return Reply(Status.OK)

    async def _answer_read_index(self) -> Reply:
        try:
            async with asyncio.timeout(self._config.raft.request_timeout_ms / 1000):
                return Reply(Status.OK, await self.reads.index())
        except (TimeoutError, RaftStoppedError):
            return Reply(Status.NOT_LEADER)

    # Appender and Confirmer

    def append(self, records: Sequence[bytes]) -> None:
        """Append as the leader. Raises NotLeaderError, RaftStoppedError."""
        if self._led_epoch is None:
            raise NotLeaderError(f"replica {self.node.replica.id} does not lead")
        self.driver.propose(records, self._led_epoch)

    async def forward(self, leader_id: int, records: Sequence[bytes]) -> None:
        """Have the leader append. Raises NotLeaderError, UnreachableError."""
        await self._ask(leader_id, Call(Kind.EXECUTE, self._cluster, records))

    async def upgrade_quorum(self, leader_id: int) -> int:
        """Have the leader keep the voters in the log; kraft.version then. Raises NotLeaderError, UnreachableError."""
        if leader_id != self.node.replica.id:
            return (await self._ask(leader_id, Call(Kind.UPGRADE, self._cluster))).number
        if self._led_epoch is None:
            raise NotLeaderError(f"replica {leader_id} does not lead")
        self.driver.upgrade_kraft_version(self._led_epoch)
        return self.driver.voters.kraft_version

    async def ask_raft(self, leader_id: int, request: SendRequest) -> Response | None:
        """The leader's answer to a request of raft's; None when there is none."""
        answered: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def settle(response: Response | None) -> None:
            if not answered.done():
                answered.set_result(response)

        if leader_id == self.node.replica.id:
            self.handle_raft(request.request, settle)
        else:
            self._network.send(request, settle)
        await asyncio.wait([answered], timeout=self._config.raft.request_timeout_ms / 1000 + ANSWER_SLACK_S)
        return answered.result() if answered.done() else None

    async def leaders_index(self, leader_id: int) -> int:
        """The leader's confirmed high watermark. Raises NotLeaderError, UnreachableError."""
        return (await self._ask(leader_id, Call(Kind.READ_INDEX, self._cluster))).number

    async def confirmed_index(self) -> int:
        """The high watermark, once a majority has said that this replica still leads."""
        epoch, index, replica = self._led_epoch, self.driver.high_watermark, self.node.replica
        if epoch is None:
            raise NotLeaderError(f"replica {replica.id} does not lead")
        others = replica.voters.others(replica.id)
        needed = majority_size(len(replica.voters)) - (1 if replica.is_voter else 0)
        if needed > 0:
            await self._confirm(epoch, others, needed)
        if self._led_epoch != epoch:
            raise NotLeaderError(f"epoch {epoch} ended meanwhile")
        return index

    async def _confirm(self, epoch: int, others: Sequence[int], needed: int) -> None:
        call = Call(Kind.CONFIRM, self._cluster, epoch=epoch)
        asked = [asyncio.create_task(self._ask(voter, call)) for voter in others]
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    needed -= (await answer).number <= epoch
                except UnreachableError:
                    continue
                if needed <= 0:
                    return
        finally:
            for task in asked:
                task.cancel()
        raise UnreachableError(f"no majority of the voters confirms epoch {epoch}")

    async def _ask(self, to: int, call: Call) -> Reply:
        replica = self.node.replica
        endpoints = replica.voters.endpoints(to)
        if not endpoints and to == replica.leader_id:
            endpoints = replica.leader_endpoints
        reply = decode_reply(await self._network.call(to, endpoints, encode_call(call)))
        match reply.status:
            case Status.OK:
                return reply
            case Status.NOT_LEADER:
                raise NotLeaderError(f"replica {to} does not lead")
            case _:
                text = f"replica {to} answers {reply.status.name} to {call.kind.name} of cluster {self._cluster!r}"
                raise UnreachableError(text)
