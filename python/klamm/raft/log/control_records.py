"""Control records of the metadata log: their types, and the values that raft writes and reads (`ControlRecordType`)."""

from collections.abc import Iterable
from typing import Final

from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

_NO_TAGS: Final = b"\x00"
_ZERO_DIRECTORY: Final = bytes(16)


class ControlRecordError(ValueError):
    """A control record that does not follow its schema."""


def encode_leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int]) -> bytes:
    """LeaderChange as Kafka writes it: schema version 0, no directory ids (`LeaderChangeMessage`)."""
    return _int(0, 2) + _int(leader_id, 4) + _id_array(voters) + _id_array(granting) + _NO_TAGS


def encode_kraft_version(kraft_version: int) -> bytes:
    """KRaftVersion."""
    return _int(0, 2) + _int(kraft_version, 2) + _NO_TAGS


def encode_voters(voters: VoterSet) -> bytes:
    """KRaftVoters for voters with known directory ids."""
    return _int(0, 2) + _uvarint(len(voters) + 1) + b"".join(map(_voter, voters.voters)) + _NO_TAGS


def snapshot_head(voters: VotersInLog) -> list[tuple[int, bytes]]:
    """The control records after a snapshot's header: none with kraft.version 0 (`RecordsSnapshotWriter`)."""
    if voters.kraft_version == 0:
        return []
    version = (KRAFT_VERSION, encode_kraft_version(voters.kraft_version))
    return [version] if voters.offset is None else [version, (KRAFT_VOTERS, encode_voters(voters.voters))]


def decode_leader_change(value: bytes) -> tuple[int, tuple[int, ...]]:
    """The leader's id, and the voters' ids, of a LeaderChange record; its other fields are passed over."""
    reader = _Reader(value)
    # Version 1 adds directory ids to the voters; Kafka does not write it yet (`LeaderChangeMessage`).
    reader.check_version("LeaderChange")
    leader_id = reader.integer(4)
    return leader_id, tuple(reader.voter_id() for _ in range(reader.array_size()))


def decode_kraft_version(value: bytes) -> int:
    """The kraft.version of a KRaftVersion record."""
    reader = _Reader(value)
    reader.check_version("KRaftVersion")
    return reader.integer(2)


def decode_voters(value: bytes) -> VoterSet:
    """The voters of a KRaftVoters record."""
    reader = _Reader(value)
    reader.check_version("KRaftVoters")
    voters = [reader.voter() for _ in range(reader.array_size())]
    try:
        return VoterSet.of(voters)
    except ValueError as error:
        raise ControlRecordError(f"KRaftVoters: {error}") from None


def _int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _string(text: str) -> bytes:
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _id_array(ids: Iterable[int]) -> bytes:
    items = [_int(voter_id, 4) + _NO_TAGS for voter_id in sorted(ids)]
    return _uvarint(len(items) + 1) + b"".join(items)


def _voter(voter: Voter) -> bytes:
    key = _int(voter.key.id, 4) + (voter.key.directory_id or _ZERO_DIRECTORY)
    endpoints = _uvarint(len(voter.endpoints) + 1) + b"".join(map(_endpoint, voter.endpoints))
    versions = _int(voter.kraft_version_min, 2) + _int(voter.kraft_version_max, 2) + _NO_TAGS
    return key + endpoints + versions + _NO_TAGS


def _endpoint(endpoint: Endpoint) -> bytes:
    return _string(endpoint.listener) + _string(endpoint.host) + endpoint.port.to_bytes(2, "big") + _NO_TAGS


class _Reader:
    """Reads a value front to back; every length is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ControlRecordError(f"{size} bytes wanted at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def integer(self, size: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ControlRecordError(f"a varint longer than 5 bytes ends at {self._position}")

    def check_version(self, name: str) -> None:
        version = self.integer(2)
        if version != 0:
            raise ControlRecordError(f"{name} has version {version}, and only 0 is known")

    def array_size(self) -> int:
        size = self.uvarint() - 1
        if not 0 <= size <= len(self._data) - self._position:
            raise ControlRecordError(f"an array of {size} entries in {len(self._data) - self._position} bytes")
        return size

    def string(self) -> str:
        try:
            return self.take(self.array_size()).decode()
        except UnicodeDecodeError as error:
            raise ControlRecordError(f"a string that is not UTF-8: {error}") from None

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def voter_id(self) -> int:
        voter_id = self.integer(4)
        self.skip_tags()
        return voter_id

    def voter(self) -> Voter:
        voter_id, directory_bytes = self.integer(4), self.take(16)
        endpoints = tuple(self.endpoint() for _ in range(self.array_size()))
        low, high = self.integer(2), self.integer(2)
        self.skip_tags()
        self.skip_tags()
        directory_id = None if directory_bytes == _ZERO_DIRECTORY else directory_bytes
        return Voter(ReplicaKey(voter_id, directory_id), endpoints, low, high)

    def endpoint(self) -> Endpoint:
        endpoint = Endpoint(self.string(), self.string(), self.integer(2, signed=False))
        self.skip_tags()
        return endpoint
