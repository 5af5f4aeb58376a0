"""Describe the metadata quorum, add and remove voters over the wire, through any broker or controller."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Self, TypeVar

from klamm.admin.client import check
from klamm.client import BrokerError, ClientError
from klamm.client.connection import Address, Connection, parse_bootstrap
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumPartition,
    QuorumPartitionData,
    QuorumTopic,
    ReplicaState,
)
from klamm.protocol.messages.quorum_messages import METADATA_TOPIC, NO_DIRECTORY
from klamm.protocol.messages.voter_messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    VoterListener,
)

CONTROLLERS: Final = 2
TIMEOUT_MS: Final = 30_000
ELECTION_S: Final = 5.0
PAUSE_S: Final = 0.05
ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
"""The errors of a controller that is not the leader."""
T = TypeVar("T")


class Member(NamedTuple):
    """A voter or an observer. Offsets and times (ms since 1970) are -1 while unknown."""

    node_id: int
    directory_id: bytes
    is_voter: bool
    endpoints: tuple[VoterListener, ...]
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The quorum as reported by its leader."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    members: tuple[Member, ...]

    @property
    def voters(self) -> tuple[Member, ...]:
        """The voters, by node id."""
        return tuple(member for member in self.members if member.is_voter)

    @property
    def observers(self) -> tuple[Member, ...]:
        """The observers, by node id."""
        return tuple(member for member in self.members if not member.is_voter)

    @property
    def leader_end_offset(self) -> int:
        """The log end offset of the leader."""
        return next((one.log_end_offset for one in self.members if one.node_id == self.leader_id), self.high_watermark)

    @property
    def max_follower_lag(self) -> int:
        """The number of records by which the slowest voter lags behind the leader."""
        return max((self.leader_end_offset - max(voter.log_end_offset, 0) for voter in self.voters), default=0)

    @property
    def max_follower_lag_ms(self) -> int:
        """How long ago the slowest voter was last caught up, according to the leader; -1 if one never was."""
        times = [voter.last_caught_up_ms for voter in self.voters]
        leader_ms = next((voter.last_caught_up_ms for voter in self.voters if voter.node_id == self.leader_id), -1)
        return -1 if min(times, default=-1) < 0 or leader_ms < 0 else max(leader_ms - min(times), 0)


class QuorumClient:
    """A connection for quorum requests: to a broker, which forwards them, or to the active controller."""

    def __init__(
        self, bootstrap: str, *, is_controller: bool, timeout_s: float = 40, config: Mapping[str, str] | None = None
    ) -> None:
        """`bootstrap`: `host:port,...`; the first address that answers is used. Raises ClientError."""
        self._timeout_s, self._is_controller, self._config = timeout_s, is_controller, dict(config or {})
        self._connection = self._connect(bootstrap)

    def describe(self) -> Quorum:
        """The quorum. Raises ClientError."""
        answer = self.ask(ask_quorum)
        return quorum_of(answer, self._describe_cluster().cluster_id)

    def add(self, node_id: int, directory_id: bytes, listeners: tuple[VoterListener, ...]) -> None:
        """Make a controller that follows the log a voter. Raises ClientError."""
        request = AddRaftVoterRequest(None, TIMEOUT_MS, node_id, directory_id, listeners)

        def ask(connection: Connection) -> None:
            answer = connection.ask(request, AddRaftVoterResponse, 1)
            check(answer.error_code, f"controller {node_id} was not added", answer.error_message)

        self.ask(ask)

    def remove(self, node_id: int, directory_id: bytes) -> None:
        """Remove a voter from the quorum. Raises ClientError."""
        request = RemoveRaftVoterRequest(None, node_id, directory_id)

        def ask(connection: Connection) -> None:
            answer = connection.ask(request, RemoveRaftVoterResponse, 0)
            check(answer.error_code, f"controller {node_id} was not removed", answer.error_message)

        self.ask(ask)

    def ask(self, ask: Callable[[Connection], T]) -> T:
        """Call `ask` with a connection, and again with the leader's if the controller is not the leader. Raises
        ClientError.

        Without a leader, or if it cannot be reached, it waits up to `ELECTION_S` for an election.
        """
        deadline = time.monotonic() + ELECTION_S
        for attempt in itertools.count():
            is_last = time.monotonic() > deadline
            time.sleep(PAUSE_S if attempt > 1 else 0)
            try:
                return ask(self._connection)
            except BrokerError as error:
                if error.error_code not in ELSEWHERE or not self._is_controller:
                    raise
                refused = error
            try:
                self._go_to_leader()
            except ClientError:
                if is_last:
                    raise
            else:
                if is_last:
                    raise refused
        raise AssertionError("itertools.count ends")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Finding the leader

    def _go_to_leader(self) -> None:
        cluster = self._describe_cluster()
        leader = next((one for one in cluster.brokers if one.broker_id == cluster.controller_id), None)
        if leader is None:
            raise ClientError(
                f"{self._connection.address} knows no leader of the quorum: `klamm quorum doctor` says why"
            )
        before, self._connection = self._connection, self._connect_to(leader.host, leader.port)
        before.close()

    def _connect(self, bootstrap: str) -> Connection:
        errors: list[str] = []
        for host, port in parse_bootstrap(bootstrap):
            try:
                return self._connect_to(host, port)
            except ClientError as error:
                errors.append(str(error))
        raise ClientError("\n".join(errors))

    def _connect_to(self, host: str, port: int) -> Connection:
        return Connection(host, port, self._timeout_s, self._config)

    # Requests

    def _describe_cluster(self) -> DescribeClusterResponse:
        endpoint_type = CONTROLLERS if self._is_controller else 1
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        answer = self._connection.ask(request, DescribeClusterResponse, 1)
        check(answer.error_code, "the cluster cannot be described", answer.error_message)
        return answer


def ask_quorum(connection: Connection) -> DescribeQuorumResponse:
    """The quorum as the node describes it. Raises BrokerError with NOT_LEADER_OR_FOLLOWER if it is not the leader."""
    request = DescribeQuorumRequest((QuorumTopic(METADATA_TOPIC, (QuorumPartition(0),)),))
    answer = connection.ask(request, DescribeQuorumResponse, 2)
    check(answer.error_code, "the quorum cannot be described", answer.error_message)
    for partition in _partitions(answer):
        check(partition.error_code, "the quorum cannot be described", partition.error_message)
    if len(_partitions(answer)) != 1:
        raise ClientError(f"{connection.address} answered for another partition than the quorum's")
    return answer


def quorum_of(answer: DescribeQuorumResponse, cluster_id: str) -> Quorum:
    """The quorum in a response without errors."""
    partition = answer.topics[0].partitions[0]
    listeners = {node.node_id: _listeners(node) for node in answer.nodes}

    def member(state: ReplicaState, is_voter: bool) -> Member:
        known = listeners.get(state.replica_id, ()) if is_voter else ()
        times = state.last_fetch_timestamp, state.last_caught_up_timestamp
        return Member(state.replica_id, state.replica_directory_id, is_voter, known, state.log_end_offset, *times)

    voters = [member(state, is_voter=True) for state in partition.current_voters]
    observers = [member(state, is_voter=False) for state in partition.observers]
    members = tuple(sorted(voters, key=_by_id) + sorted(observers, key=_by_id))
    return Quorum(cluster_id, partition.leader_id, partition.leader_epoch, partition.high_watermark, members)


def find_controllers(bootstrap: str, config: Mapping[str, str], way_out: str) -> list[Address]:
    """The addresses of the voters, the leader first, as a broker knows them. Raises ClientError.

    `way_out`: a sentence with advice if the broker cannot be reached.
    """
    try:
        with QuorumClient(bootstrap, is_controller=False, config=config) as client:
            quorum = client.describe()
    except ClientError as error:
        end = "" if str(error).endswith("?") else "."
        raise ClientError(f"{error}{end} {way_out}") from None
    leader_first = sorted(quorum.voters, key=lambda voter: voter.node_id != quorum.leader_id)
    found = [(one.host, one.port) for voter in leader_first for one in voter.endpoints[:1]]
    if not found:
        raise ClientError(f"the broker at {bootstrap} does not say where the controllers listen. {way_out}")
    return found


def voter_of(quorum: Quorum, node_id: int, directory_id: bytes | None) -> Member:
    """The voter with this node id, and with this directory if one is given. Raises ClientError."""
    found = [voter for voter in quorum.voters if voter.node_id == node_id]
    found = [voter for voter in found if directory_id in (None, voter.directory_id)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(str(voter.node_id) for voter in quorum.voters)
    raise ClientError(f"controller {node_id}{' with that directory id' if directory_id else ''} is not a voter: {ids}")


def observer_directory(quorum: Quorum, node_id: int) -> bytes:
    """The directory id of the only observer with this node id. Raises ClientError."""
    found = [one.directory_id for one in quorum.observers if one.node_id == node_id]
    found = [directory_id for directory_id in found if directory_id != NO_DIRECTORY]
    if len(found) == 1:
        return found[0]
    if found:
        raise ClientError(f"{len(found)} directories follow the log as node {node_id}: give --directory-id")
    raise ClientError(f"no controller {node_id} follows the log: start it first, then add it")


def _partitions(answer: DescribeQuorumResponse) -> list[QuorumPartitionData]:
    return [partition for topic in answer.topics for partition in topic.partitions]


def _listeners(node: QuorumNode) -> tuple[VoterListener, ...]:
    return tuple(VoterListener(one.name, one.host, one.port) for one in node.listeners)


def _by_id(member: Member) -> int:
    return member.node_id
