"""Plans the recovery from the survivors of a lost majority. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klamm.cli.recovery.survivors import Survivor
from klamm.client import ClientError
from klamm.config.node_config import Address
from klamm.protocol.uuids import uuid_text
from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet


class Plan(NamedTuple):
    """A quorum of the survivors, each with the longest log."""

    cluster_id: str
    chosen: Survivor
    """The survivor whose log all others receive."""
    targets: tuple[Survivor, ...]
    """The remaining voters, whose logs are replaced."""
    old_voters: VoterSet
    new_voters: VoterSet
    kraft_version: int
    epoch: int
    """The epoch of the new records: higher than every epoch that a survivor has seen."""
    static_voters: Mapping[int, Address]
    """The addresses of static voters, as far as a server.properties contains them."""
    warnings: tuple[str, ...]

    @property
    def lost(self) -> tuple[int, ...]:
        """The voters that are removed."""
        return tuple(one for one in self.old_voters.ids if one not in self.new_voters.ids)


def make_plan(survivors: Sequence[Survivor]) -> Plan:
    """The plan for these directories. Raises ClientError if they do not belong together, or if no majority is lost.

    Survivors with damaged logs are included because the user accepted the loss.
    """
    _check_together(survivors)
    # The rule of elections: the last record's epoch first, then the log's length.
    chosen = max(survivors, key=lambda one: (one.end.epoch, one.end.offset))
    static = {voter: address for one in survivors for voter, address in (one.static_voters or {}).items()}
    voters = _voters(chosen, static)
    targets = tuple(sorted((one for one in survivors if _is_voter(voters, one.key)), key=lambda one: one.key.id))
    _check_majority(voters, targets)
    new_voters = VoterSet.of(voter for voter in voters.voters if voter.key.id in {one.key.id for one in targets})
    return Plan(
        cluster_id=chosen.meta.cluster_id,
        chosen=chosen,
        targets=targets,
        old_voters=voters,
        new_voters=new_voters,
        kraft_version=chosen.quorum.kraft_version,
        epoch=max(max(one.election.epoch, one.end.epoch) for one in survivors) + 1,
        static_voters=static,
        warnings=tuple(_warnings(survivors, targets)),
    )


def removals(plan: Plan) -> list[VoterSet]:
    """The voter sets from the old to the new, each with one voter less, as KIP-853 requires."""
    voters: tuple[Voter, ...] = plan.old_voters.voters
    steps = []
    for lost in plan.lost:
        voters = tuple(voter for voter in voters if voter.key.id != lost)
        steps.append(VoterSet.of(voters))
    return steps


def _check_together(survivors: Sequence[Survivor]) -> None:
    if not survivors:
        raise ClientError("name the directory or the server.properties of every node that is left")
    first = survivors[0]
    seen: dict[int, Survivor] = {}
    for one in survivors:
        if one.meta.cluster_id != first.meta.cluster_id:
            raise ClientError(
                f"{one.directory} is of cluster {one.meta.cluster_id}, {first.directory} of {first.meta.cluster_id}: "
                "name directories of one cluster"
            )
        other = seen.setdefault(one.key.id, one)
        if other is not one:
            raise ClientError(
                f"{one.directory} and {other.directory} both belong to node {one.key.id}: name one of them"
            )


def _voters(chosen: Survivor, static: Mapping[int, Address]) -> VoterSet:
    """The voters in the log; a configuration may have been changed since the majority was lost."""
    if chosen.quorum.kraft_version > 0:
        return VoterSet.of(chosen.quorum.voters)
    if not chosen.quorum.voters and static:
        return VoterSet.of_ids(static)
    if not chosen.quorum.voters:
        raise ClientError(
            f"the log in {chosen.directory} does not say who the voters are: name a server.properties instead"
        )
    return VoterSet.of_ids(voter.key.id for voter in chosen.quorum.voters)


def _is_voter(voters: VoterSet, key: ReplicaKey) -> bool:
    return voters.is_voter(key)


def _check_majority(voters: VoterSet, targets: Sequence[Survivor]) -> None:
    ids = [one.key.id for one in targets if one.loss is None]
    if not targets:
        raise ClientError(f"none of these nodes is a voter: the voters are {_listed(voters.ids)}")
    if 2 * len(ids) > len(voters):
        raise ClientError(
            f"nothing is lost: {_listed(ids)} of the voters {_listed(voters.ids)} are a majority. Start them; "
            "`klamm quorum doctor` says why they find no leader. Do not name directories here that cannot be used"
        )


def _warnings(survivors: Sequence[Survivor], targets: Sequence[Survivor]) -> list[str]:
    found = []
    for one in survivors:
        if one.loss is not None:
            found.append(one.loss)
        if one.problem is not None:
            found.append(f"quorum-state of node {one.key.id} cannot be read and is recreated: {one.problem}")
        if one not in targets:
            known = "" if one.meta.directory_id is None else f" with directory id {uuid_text(one.meta.directory_id)}"
            found.append(f"node {one.key.id}{known} is no voter: its log is compared, and stays as it is")
    return found


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
