"""The state of the quorum as DescribeQuorum needs it."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.broker.handlers.quorum import QuorumState
from klamm.protocol.messages.cluster import ReplicaState
from klamm.raft.description import ReplicaDescription
from klamm.raft.driver import RaftDriver
from klamm.raft.ports import NotLeaderError
from klamm.raft.voters.voter_set import Endpoint, Voter

Endpoints = list[tuple[str, str, int]]


class QuorumView:
    """The quorum of one node, at the time of each call."""

    def __init__(self, raft: RaftDriver, own_id: int, own_endpoints: Sequence[Endpoint]) -> None:
        """`own_endpoints` are this node's controller listeners with their bound ports."""
        self._raft, self._own_id, self._own_endpoints = raft, own_id, own_endpoints

    @property
    def leader_id(self) -> int | None:
        """The leader that this node knows of."""
        return self._raft.leader_id

    def state(self) -> QuorumState | None:
        """The state of the quorum; None if this node is not the leader."""
        try:
            found = self._raft.describe_quorum()
        except NotLeaderError:
            return None
        return QuorumState(
            leader_id=found.leader_id,
            leader_epoch=found.leader_epoch,
            high_watermark=found.high_watermark,
            voters=list(map(_shown, found.voters)),
            observers=list(map(_shown, found.observers)),
            nodes=[(voter.key.id, self._endpoints_of(voter)) for voter in found.nodes],
        )

    def _endpoints_of(self, voter: Voter) -> Endpoints:
        """The endpoints of a voter; for this node the bound ones, because the system may have chosen the port."""
        if voter.key.id == self._own_id:
            return [(one.listener, one.host, one.port) for one in self._own_endpoints]
        return [(one.listener, one.host, one.port) for one in voter.endpoints]


def _shown(replica: ReplicaDescription) -> ReplicaState:
    return ReplicaState(
        replica.key.id,
        replica.log_end_offset,
        replica.key.directory_id or bytes(16),
        replica.last_fetch_timestamp_ms,
        replica.last_caught_up_timestamp_ms,
    )
