"""The operator of a dynamic quorum: adds and removes voters, moves them to other ports, loses their disks (KIP-853).

As careful as an operator must be, and no more. A disk is lost only if the rest of every voter set that may be in force
is a majority and can elect one of its members. While a disk is lost, no working voter is removed. No protocol survives
more than that. A majority is not enough after a new leader truncated a voter's addition from its log: that replica
holds the leader's last records as an observer, so it grants no vote to a candidate without them and cannot campaign.
"""

import random
from collections.abc import Callable, Sequence

from klamm.raft.election.role_states import Leader
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import AddVoterRequest, RemoveVoterRequest
from klamm.raft.voters.quorum import majority_size
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.simulated_replica import SimulatedReplica

CLIENT = 0


class Operator:
    """Decides the next operation; the world executes it."""

    def __init__(self, rng: random.Random, replicas: dict[int, SimulatedReplica]) -> None:
        self._rng, self._replicas = rng, replicas

    def change(self, leader: SimulatedReplica) -> Envelope | None:
        """An AddRaftVoter or RemoveRaftVoter for a leader; None if there is nothing to change."""
        if self._moved_keys():
            return None  # first the voters must find each other again
        voters, rng = leader.running.replica.voters, self._rng
        candidates: list[Callable[[], AddVoterRequest | RemoveVoterRequest]] = [
            lambda replica=replica: self._addition(replica)  # type: ignore[misc]
            for replica in self._replicas.values()
            if voters.get(replica.id) is None
        ]
        lost = self._lost_keys()
        removable = [voter.key for voter in voters.voters if not self._names_any(lost) or voter.key in lost]
        candidates += [lambda key=key: self._removal(key) for key in removable if len(voters) > 1]  # type: ignore[misc]
        if not candidates:
            return None
        return Envelope(CLIENT, leader.id, -1, 0, rng.choice(candidates)())

    def may_lose_disk(self, replica: SimulatedReplica) -> bool:
        """Whether every voter set in any log keeps a majority of disks without this one, and no change is in progress.

        Before a log has directory ids, a leader may be about to write those that were reported to it earlier.
        """
        if self._is_joining(replica) or not all(self._names_directories(other) for other in self._replicas.values()):
            return False
        lost = {*self._lost_keys(), *self._moved_keys(), replica.key}
        rest = [other for other in self._replicas.values() if other is not replica]
        return all(self._survives(voters, lost) for voters in self._known_sets()) and _would_elect_one(rest)

    def may_move(self, replica: SimulatedReplica) -> bool:
        """Whether every voter set in any log has a majority at its recorded endpoints, also without this replica.

        Voters that know no leader contact only the other voters: they cannot find a majority at other endpoints.
        """
        if replica.directory is None or not all(map(self._names_directories, self._replicas.values())):
            return False
        unavailable = {*self._lost_keys(), replica.key, *self._moved_keys()}
        return all(self._survives(voters, unavailable) for voters in self._known_sets())

    def _moved_keys(self) -> set[ReplicaKey]:
        """The voters whose port differs from the one in some log, now or after their next start."""
        ports = {replica.key: replica.next_port for replica in self._replicas.values()}
        return {
            voter.key
            for voters in self._known_sets()
            for voter in voters.voters
            if voter.endpoints and ports.get(voter.key, voter.endpoints[0].port) != voter.endpoints[0].port
        }

    def is_lost(self) -> bool:
        """Whether late requests led to a voter set with too few disks."""
        lost = self._lost_keys()
        return not all(self._survives(voters, lost) for voters in self._known_sets())

    def is_stuck(self) -> bool:
        """Whether, with a lost disk or a moved voter, the final logs allow no election.

        Late messages can cause that.
        """
        is_excuse = bool(self._lost_keys()) or bool(self._moved_keys())
        return is_excuse and not _would_elect_one([*self._replicas.values()])

    def _addition(self, replica: SimulatedReplica) -> AddVoterRequest:
        return AddVoterRequest("cluster", replica.key, replica.endpoints, self._rng.random() < 0.8)

    def _removal(self, key: ReplicaKey) -> RemoveVoterRequest:
        return RemoveVoterRequest("cluster", key if self._rng.random() < 0.7 else ReplicaKey(key.id))

    def _is_joining(self, replica: SimulatedReplica) -> bool:
        states = [other.core.replica.state for other in self._replicas.values() if other.core is not None]
        changes = [state.change for state in states if isinstance(state, Leader) and state.change is not None]
        return any(change.request.voter.id == replica.id for change in changes)

    @staticmethod
    def _names_directories(replica: SimulatedReplica) -> bool:
        known = replica.known_voters()
        return known.kraft_version > 0 or not known.voters.voters

    def _lost_keys(self) -> set[ReplicaKey]:
        return {disk.key for replica in self._replicas.values() for disk in replica.lost}

    def _known_sets(self) -> list[VoterSet]:
        return [replica.known_voters().voters for replica in self._replicas.values()]

    def _names_any(self, lost: set[ReplicaKey]) -> bool:
        return any(voter.key in lost for voters in self._known_sets() for voter in voters.voters)

    @staticmethod
    def _survives(voters: VoterSet, lost: set[ReplicaKey]) -> bool:
        alive = sum(voter.key not in lost for voter in voters.voters)
        return not voters.voters or alive >= majority_size(len(voters))


def _would_elect_one(replicas: Sequence[SimulatedReplica]) -> bool:
    """Whether one of them is a voter by its own log, and its log is at least as new as those of a majority."""
    ends = [(replica, OffsetAndEpoch(replica.log.end_offset, replica.log.last_epoch)) for replica in replicas]
    for candidate, log_end in ends:
        voters = candidate.known_voters().voters
        grants = sum(
            voters.is_voter(other.key) and (other is candidate or _is_where_it_says(other, voters))
            for other, its_end in ends
            if log_end.is_up_to_date_with(its_end)
        )
        if voters.is_voter(candidate.key) and grants >= majority_size(len(voters)):
            return True
    return False


def _is_where_it_says(replica: SimulatedReplica, voters: VoterSet) -> bool:
    endpoints = voters.endpoints(replica.id)
    return not endpoints or endpoints[0].port == replica.next_port
