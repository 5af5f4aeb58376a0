"""Changes of the voters while the replicas run (KIP-853). Any replica can request one; it sends it to the leader."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from klamm.raft.effects import SendRequest
from klamm.raft.library.driver.leadership import LeadershipView
from klamm.raft.library.driver.network import UnreachableError
from klamm.raft.library.errors import MembershipError
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    Error,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Response,
)
from klamm.raft.node import RaftNode
from klamm.raft.ports import NotLeaderError
from klamm.raft.voters.voter_set import VoterSet

RETRY_S: Final = 0.1
# Temporary refusals: another change is in progress, the new voter has not caught up, the leader has changed.
_PASSING: Final = frozenset({Error.REQUEST_TIMED_OUT, Error.NOT_LEADER_OR_FOLLOWER, Error.BROKER_NOT_AVAILABLE})

Change = AddVoterRequest | RemoveVoterRequest


class LeaderAccess(Protocol):
    """Reaches the leader, which may be this replica."""

    async def upgrade_quorum(self, leader_id: int) -> int:
        """Have the leader keep the voters in the log; kraft.version then. Raises NotLeaderError, UnreachableError."""

    async def ask_raft(self, leader_id: int, request: SendRequest) -> Response | None:
        """The leader's answer to a request of raft's; None when there is none."""


class Membership:
    """Makes changes one after the other, and retries as long as a retry may succeed."""

    def __init__(self, node: RaftNode, access: LeaderAccess, leadership: LeadershipView) -> None:
        self._node, self._access, self._leadership = node, access, leadership

    async def join(self, timeout_s: float) -> None:
        """Make this replica a voter."""
        replica = self._node.replica
        if not replica.identity.endpoints:
            raise MembershipError(f"replica {replica.id} has no address for the others: give it `address`")
        request = AddVoterRequest(replica.identity.cluster_id, replica.key, replica.identity.endpoints)
        await self._change(request, lambda: self._committed.is_voter(replica.key), timeout_s)

    async def remove(self, node_id: int, timeout_s: float) -> None:
        """Make a voter an observer."""
        replica = self._node.replica
        voter = replica.voters.get(node_id)
        if voter is None:
            raise MembershipError(f"replica {node_id} is no voter; the voters are {list(replica.voters.ids)}")
        request = RemoveVoterRequest(replica.identity.cluster_id, voter.key._replace(directory_id=None))
        await self._change(request, lambda: self._committed.get(node_id) is None, timeout_s)

    @property
    def _committed(self) -> VoterSet:
        """A voter set acts from its append on, but until it is committed another leader may undo it."""
        replica = self._node.replica
        return replica.voter_history.below(max(replica.high_watermark, 0)).voters

    async def _change(self, request: Change, is_done: _Condition, timeout_s: float) -> None:
        why = "no leader is known"
        try:
            async with asyncio.timeout(timeout_s):
                while not is_done():
                    leader_id = self._leadership.current.leader_id
                    if leader_id is not None:
                        why = await self._ask(leader_id, request)
                    if not is_done():
                        await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise MembershipError(f"not done after {timeout_s} s, as far as is known here: {why}") from None

    async def _ask(self, leader_id: int, request: Change) -> str:
        """The reason why it is not done yet. Raises MembershipError if it never will be."""
        try:
            if await self._access.upgrade_quorum(leader_id) == 0:
                return "not all voters have reported their directory ids: are they up?"
        except (NotLeaderError, UnreachableError) as error:
            return str(error)
        replica = self._node.replica
        endpoints = replica.voters.endpoints(leader_id) or replica.leader_endpoints
        sent = SendRequest(leader_id, endpoints, -1, request, after=0)
        answer = await self._access.ask_raft(leader_id, sent)
        if not isinstance(answer, AddVoterResponse | RemoveVoterResponse):
            return f"replica {leader_id} gave no answer"
        text = answer.message or answer.error.name
        is_repeated = answer.error in (Error.DUPLICATE_VOTER, Error.VOTER_NOT_FOUND) and len(replica.voters) > 1
        if answer.error is Error.NONE or answer.error in _PASSING or is_repeated:
            return text
        raise MembershipError(text)


class _Condition(Protocol):
    def __call__(self) -> bool: ...
