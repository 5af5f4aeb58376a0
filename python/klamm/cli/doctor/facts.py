"""The input of the doctor: responses of controllers, and the content of their directories."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from klamm.admin.quorum import Member, Quorum
from klamm.config.node_config import Address
from klamm.formats.meta_properties import MetaProperties
from klamm.raft.election.election_state import ElectionState
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet


class Refusal(enum.Enum):
    """Why an address did not respond."""

    REFUSED = "nothing listens there"
    TIMED_OUT = "no answer in time"
    UNKNOWN_HOST = "the host's name is not known"
    UNREACHABLE = "there is no route to the host"
    NOT_TRUSTED = "TLS or SASL failed"
    NOT_A_CONTROLLER = "the process that listens there is not a controller"


class ContactedAddress(NamedTuple):
    """One address and the response of the controller there."""

    address: Address
    voter_id: int | None = None
    """The voter that is known to have this address."""
    refusal: Refusal | None = None
    detail: str = ""
    """The system's error message."""
    cluster_id: str | None = None
    leader_id: int | None = None
    """The leader that it knows, or None."""
    epochs: tuple[int, ...] = ()
    """Its epoch at each contact."""
    quorum: Quorum | None = None
    """Its description of the quorum, if it is the leader."""
    asked_at_ms: int = 0
    """This machine's clock at the time of the response."""

    @property
    def is_reached(self) -> bool:
        """Whether a controller answered."""
        return self.refusal is None

    @property
    def name(self) -> str:
        """`voter 2 at host:9093`."""
        where = "{}:{}".format(*self.address)
        return where if self.voter_id is None else f"voter {self.voter_id} at {where}"


class NodeConfigFacts(NamedTuple):
    """The quorum according to a server.properties."""

    file: Path
    node_id: int
    is_controller: bool
    voters: Mapping[int, Address]
    bootstrap: tuple[Address, ...]
    advertised: tuple[Address, ...]
    """The advertised addresses of its controller listeners."""


class Directory(NamedTuple):
    """The metadata directory of a node on this machine."""

    path: Path
    config: NodeConfigFacts | None = None
    meta: MetaProperties | None = None
    election: ElectionState | None = None
    end: OffsetAndEpoch | None = None
    """The end of its log; None if it cannot be read."""
    last_time_ms: int = -1
    voters: VoterSet = VoterSet(())
    """The voters according to its log."""
    kraft_version: int = 0
    registered: Mapping[int, Address] = {}
    """The addresses of registered controllers according to its log."""
    is_running: bool = False
    """Whether a process has locked it."""
    free_bytes: int | None = None
    total_bytes: int | None = None
    is_writable: bool = True
    fsync_ms: float | None = None
    """How long a small durable write took, if it was tried."""
    problems: tuple[str, ...] = ()
    """What could not be read, each with the file."""

    @property
    def name(self) -> str:
        """`node 1 (/data/1)`."""
        return str(self.path) if self.meta is None else f"node {self.meta.node_id} ({self.path})"


class Facts(NamedTuple):
    """All collected facts."""

    contacts: tuple[ContactedAddress, ...]
    directories: tuple[Directory, ...]
    now_ms: int

    @property
    def leader(self) -> ContactedAddress | None:
        """The contact that is leader; the one with the highest epoch if there are several."""
        leading = [one for one in self.contacts if one.quorum is not None]
        return max(leading, key=lambda one: one.epochs[-1:] or (-1,), default=None)

    def voters(self) -> tuple[Voter, ...]:
        """The voters: from the leader, the longest log, or a configuration; else the controllers that others know."""
        if self.leader is not None and self.leader.quorum is not None:
            return tuple(_voter_of(member) for member in self.leader.quorum.voters)
        logs = [one for one in self.directories if one.end is not None and len(one.voters)]
        if logs:
            newest = max(logs, key=lambda one: (one.end.epoch, one.end.offset) if one.end else (-1, -1))
            return newest.voters.voters
        configured = {voter for one in self.directories if one.config for voter in one.config.voters}
        registered = {one.voter_id for one in self.contacts if one.voter_id is not None}
        return VoterSet.of_ids(sorted(configured or registered)).voters


def _voter_of(member: Member) -> Voter:
    directory_id = member.directory_id if any(member.directory_id) else None
    endpoints = tuple(Endpoint(one.name, one.host, one.port) for one in member.endpoints)
    return Voter(ReplicaKey(member.node_id, directory_id), endpoints)
