"""The members of the quorum: replica keys, endpoints and the set of voters (KIP-853)."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from klamm.protocol.value import Value

# The kraft.versions that this code can.
KRAFT_VERSION_MIN: Final = 0
KRAFT_VERSION_MAX: Final = 1


class ReplicaKey(NamedTuple):
    """A replica: its node id and, where it is known, the 16 bytes of its metadata directory's id."""

    id: int
    directory_id: bytes | None = None

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether `other` can be the replica of this entry; without a directory id the entry matches any (KIP-853)."""
        return self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)


class Endpoint(NamedTuple):
    """Where a replica listens."""

    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    """One entry of the voter set, as in a `VotersRecord` (KIP-853)."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = KRAFT_VERSION_MIN
    kraft_version_max: int = KRAFT_VERSION_MAX

    def supports(self, kraft_version: int) -> bool:
        """Whether the voter can take part at that level."""
        return self.kraft_version_min <= kraft_version <= self.kraft_version_max


class VoterSet:
    """The voters by ascending node id; no id twice. Never changed."""

    __slots__ = ("_by_id", "ids", "voters")

    def __init__(self, voters: tuple[Voter, ...]) -> None:
        ids = tuple(voter.key.id for voter in voters)
        if list(ids) != sorted(set(ids)) or any(voter_id < 0 for voter_id in ids):
            raise ValueError(f"voter ids must be ascending, unique and not negative, but are {list(ids)}")
        self.voters: Final = voters
        self.ids: Final = ids
        """The voters' node ids, ascending."""
        self._by_id: Final = dict(zip(ids, voters, strict=True))

    def __eq__(self, other: object) -> bool:
        return self.voters == other.voters if isinstance(other, VoterSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet(voters={self.voters!r})"

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> Self:
        """The set of `voters`, given in any order."""
        return cls(tuple(sorted(voters, key=lambda voter: voter.key.id)))

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> Self:
        """Voters known by node id alone."""
        return cls.of(Voter(ReplicaKey(voter_id)) for voter_id in ids)

    def __len__(self) -> int:
        return len(self.voters)

    def get(self, node_id: int) -> Voter | None:
        """The voter with that node id, whatever its directory."""
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is one of the voters."""
        voter = self.get(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is a majority by itself."""
        return len(self.voters) == 1 and self.is_voter(key)

    def others(self, node_id: int) -> tuple[int, ...]:
        """The voters' node ids without `node_id`."""
        return tuple(voter_id for voter_id in self.ids if voter_id != node_id)

    def with_voter(self, voter: Voter) -> "VoterSet":
        """The set with that entry in place of the one of the same node id, or added."""
        return VoterSet.of([*(entry for entry in self.voters if entry.key.id != voter.key.id), voter])

    def without(self, node_id: int) -> "VoterSet":
        """The set without that voter."""
        return VoterSet.of(entry for entry in self.voters if entry.key.id != node_id)

    def endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        """Where that voter listens; empty when it is no voter."""
        voter = self.get(node_id)
        return voter.endpoints if voter is not None else ()


# The offset of a voter set from the formatted directory's snapshot 0-0 (KIP-853).
BOOTSTRAP_OFFSET = -1


class VotersInLog(Value):
    """The voter set in force, the offset of its record (None: from static configuration), and the kraft.version."""

    voters: VoterSet
    offset: int | None = None
    kraft_version: int = 0
