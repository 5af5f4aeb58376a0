"""A replica: the main class of `klamm.raft`.

async with Replica(Counter(), "data") as replica:
    print(await replica.execute(b"add 1"))
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from klamm.driving.clock import LoopClock
from klamm.raft.library.driver.batch_results import BatchResults, Slot
from klamm.raft.library.driver.config import ReplicaConfig
from klamm.raft.library.driver.directory_files import DirectoryFiles, DirectoryOwner
from klamm.raft.library.driver.leadership import Callback, Leadership
from klamm.raft.library.driver.member import LISTENER, Member
from klamm.raft.library.driver.network import LocalHub, Network
from klamm.raft.library.driver.tcp import TcpNetwork
from klamm.raft.library.errors import NoLeaderError
from klamm.raft.library.sessions import ReplicatedState
from klamm.raft.library.state_machine import StateMachine
from klamm.raft.ports import RaftStoppedError
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

logger = logging.getLogger("klamm.raft")

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")


class Replica(Generic[M]):
    """One replica of a state machine, with its log in its own directory.

    Guarantees, if a majority of the voters eventually returns with their disks: a command whose result was returned is
    on the disks of a majority and is never lost; every replica applies the same commands in the same order; a command
    is applied once however often it had to be sent; `read` sees every command whose result was returned before the read
    began. Must be created and used on one loop; `SyncReplica` is the equivalent for threads.
    """

    def __init__(
        self,
        machine: M,
        directory: str | Path,
        *,
        node_id: int = 1,
        voters: Mapping[int, str] | None = None,
        cluster: str = "klamm",
        config: ReplicaConfig | None = None,
        address: str | None = None,
        listen: str | None = None,
        network: Network | None = None,
    ) -> None:
        """`voters` maps the node id of each voter to its "host:port"; None: this replica alone.

        These are the initial voters; after `join` or `remove_voter` the log defines the voters. A `node_id` outside of
        them makes an observer: it holds the whole state and forwards commands, but has no vote. `address` is the
        "host:port" by which the others reach it, needed to become a voter. `cluster` is a name that all replicas of one
        state share, and no others. `listen` is the "host:port" to bind when it differs from the address, for example
        with a forwarded port. Anyone who can connect can read and change the state: use a private network.
        """
        self._machine, self._directory = machine, Path(directory)
        self._node_id, self._cluster = node_id, cluster
        self._config = config or ReplicaConfig()
        within = LOCAL if network is not None else ()
        self._voters = _voter_set(voters if voters is not None else {node_id: ""}, within)
        self._endpoints = _endpoints(address) if address else self._voters.endpoints(node_id) or within
        self._listen = listen
        self._network = network
        self._state = ReplicatedState(machine)
        self._member: Member | None = None
        self._progress_callbacks: list[Callable[[int], object]] = []

    async def start(self) -> None:
        """Open the directory and take part; returns before anyone is elected.

        Raises ReplicaDirectoryError, QuorumStateError, StorageError, OSError.
        """
        if self._member is not None:
            raise RuntimeError("this replica was started before: make another one")
        home = await asyncio.to_thread(self._open_home)
        try:
            self._member = Member(
                home,
                self._state,
                self._network or self._default_network(),
                node_id=self._node_id,
                cluster=self._cluster,
                endpoints=self._endpoints,
                static_voters=self._voters,
                config=self._config,
                on_progress=self._on_progress,
            )
        except BaseException:  # whatever it is, the directory is unlocked
            home.close()
            raise
        try:
            await self._member.start()
        except BaseException:  # also a start that is cancelled
            await self.close()
            raise

    def _open_home(self) -> DirectoryFiles:
        owner = DirectoryOwner(self._node_id, self._cluster)
        return DirectoryFiles(
            self._directory,
            owner,
            voters=self._voters.ids,
            segment_bytes=self._config.segment_bytes,
            is_volatile=not self._config.flush,
        )

    def _default_network(self) -> Network:
        address = _endpoints(self._listen) if self._listen else self._endpoints
        if not address and not any(voter.endpoints for voter in self._voters.voters):
            return LocalHub().network(self._node_id)
        return TcpNetwork(address[0] if address else None, self._config.raft)

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Hand over if this replica leads, and stop, at the latest after `timeout_s`; may be called again.

        What waits fails with RaftStoppedError.
        """
        if self._member is not None:
            await self._member.close(timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Commands

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> bytes:
        """Apply a command on every replica. Returns the result of `apply`, once it is on the disks of a majority.

        Works on any replica: others forward to the leader. The command is applied exactly once. With NoLeaderError and
        CommandRefusedError it was not applied; with OutcomeUnknownError the time-out passed and the outcome is unknown.
        RaftStoppedError: this replica has stopped. ValueError: the command is longer than 4 MiB.
        """
        commands = self._running.commands
        await commands.room()
        result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        commands.submit(command, self._timeout_s(timeout_s), result)
        return await result

    async def execute_all(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> list[bytes]:
        """The results of many commands, which are sent together; the guarantees of `execute` apply to each.

        The first error among them is raised when all have their outcome. Other replicas' commands may come in between.
        """
        wait_s, ours = self._timeout_s(timeout_s), self._running.commands
        gathered = BatchResults(len(commands))
        for index, command in enumerate(commands):
            if ours.is_full:
                await ours.room()
            try:
                ours.submit(command, wait_s, Slot(gathered, index))
            except (RaftStoppedError, ValueError) as error:
                gathered.settle(index, b"", error)
        return await gathered.future

    # Reads

    async def read(self, query: Callable[[M], T], *, timeout_s: float | None = None) -> T:
        """The result of `query` on the state, with every command applied that had its result before this call.

        Linearizable, without a write: the leader asks a majority whether it still leads. `query` must change nothing.
        Raises NoLeaderError (no leader, or no majority that confirms it, in time), RaftStoppedError.
        """
        member, wait_s = self._running, self._timeout_s(timeout_s)
        try:
            async with asyncio.timeout(wait_s):
                await member.applier.when_applied(await member.reads.index())
        except TimeoutError:
            leader = member.leadership.current
            text = f"no leader was confirmed within {wait_s} s; the last one known is {leader.leader_id}"
            raise NoLeaderError(f"{text} (epoch {leader.epoch}): is a majority of the voters up?") from None
        return query(self._machine)

    def read_local(self, query: Callable[[M], T]) -> T:
        """The result of `query` on this replica's state, at once: it may be stale, but is never uncommitted."""
        return query(self._machine)

    # Leadership and progress

    @property
    def leadership(self) -> Leadership:
        """The leader that this replica knows."""
        return self._running.leadership.current

    def on_leader_change(self, callback: Callback) -> Callable[[], None]:
        """Call `callback(Leadership)` now and with each change; returns a function that ends the subscription.

        A replica learns of changes late, and of some not at all: mutual exclusion needs a lock.
        """
        return self._running.leadership.subscribe(callback)

    async def wait_for_leader(self, timeout_s: float | None = None) -> int:
        """The leader's node id, when there is one. Raises NoLeaderError."""
        wait_s = self._timeout_s(timeout_s)
        clock = LoopClock()
        deadline_ms = clock.now_ms() + int(wait_s * 1000)
        while (leader := self._running.leadership.current).leader_id is None:
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                raise NoLeaderError(f"no leader within {wait_s} s (epoch {leader.epoch}): is a majority up?")
            await self._running.leadership.changed(left_ms / 1000)
        return leader.leader_id

    def resign(self) -> None:
        """Hand leadership to another voter; no effect if this replica does not lead."""
        member = self._running
        if member.leadership.current.is_self:
            member.driver.resign(member.leadership.current.epoch)

    # Voters

    @property
    def voters(self) -> dict[int, str]:
        """The voters' node ids and addresses as this replica knows them; an address may be empty in one process."""
        voters = self._running.node.replica.voters
        return {
            voter.key.id: f"{voter.endpoints[0].host}:{voter.endpoints[0].port}" if voter.endpoints else ""
            for voter in voters.voters
        }

    async def join(self, *, timeout_s: float = 60.0) -> None:
        """Make this observer a voter, once it has caught up with the leader; no effect if it is one.

        Raises MembershipError: the leader refused it, or the timeout passed, and the change may still succeed.
        """
        await self._running.membership.join(timeout_s)

    async def remove_voter(self, node_id: int, *, timeout_s: float = 60.0) -> None:
        """Remove a voter, which continues as an observer until it is closed. The leader may be removed, too.

        Refused if the remaining voters could not continue. Raises MembershipError.
        """
        await self._running.membership.remove(node_id, timeout_s)

    @property
    def applied_offset(self) -> int:
        """The state holds every record of the log below this offset."""
        return self._running.applier.applied

    def on_applied(self, callback: Callable[[int], object]) -> Callable[[], None]:
        """Call `callback(applied_offset)` whenever the state changes; returns a function that ends the subscription."""
        self._progress_callbacks.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._progress_callbacks.remove(callback)

        return unsubscribe

    def _on_progress(self, offset: int) -> None:
        for callback in list(self._progress_callbacks):
            try:
                callback(offset)
            except Exception:  # a listener's fault is not the replica's
                logger.exception("a callback of on_applied failed")

    @property
    def _running(self) -> Member:
        member = self._member
        if member is None:
            raise RaftStoppedError("the replica was not started: `async with Replica(...)`, or `await replica.start()`")
        if member.fault is not None:
            raise RaftStoppedError(str(member.fault))
        return member

    def _timeout_s(self, given_s: float | None) -> float:
        return self._config.timeout_s if given_s is None else given_s


# Where replicas are that no address leads to: in this process.
LOCAL: Final = (Endpoint(LISTENER, "local", 0),)


def _voter_set(voters: Mapping[int, str], within: tuple[Endpoint, ...]) -> VoterSet:
    entries = ((node_id, _endpoints(address) or within) for node_id, address in voters.items())
    return VoterSet.of(Voter(ReplicaKey(node_id), endpoints) for node_id, endpoints in entries)


def _endpoints(address: str) -> tuple[Endpoint, ...]:
    if not address:
        return ()
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError(f"{address!r} is no address of a voter: it must be host:port")
    return (Endpoint(LISTENER, host.strip("[]"), int(port)),)
