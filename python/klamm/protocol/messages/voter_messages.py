"""Changes of the quorum's voters (KIP-853), and the ApiVersions request before an addition; fields as on the wire."""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.quorum_messages import NO_DIRECTORY
from klamm.protocol.value import Value


class VoterListener(Value):
    """Where a voter listens, by the listener's name."""

    name: str
    host: str
    port: int


class AddRaftVoterRequest(Value):
    """AddRaftVoter (80)."""

    API_KEY: ClassVar[int] = ApiKey.ADD_RAFT_VOTER
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: bytes
    listeners: tuple[VoterListener, ...]
    ack_when_committed: bool = True


class AddRaftVoterResponse(Value):
    """AddRaftVoter (80)."""

    API_KEY: ClassVar[int] = ApiKey.ADD_RAFT_VOTER
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


class RemoveRaftVoterRequest(Value):
    """RemoveRaftVoter (81). Without a directory id it names the voter of that node id."""

    API_KEY: ClassVar[int] = ApiKey.REMOVE_RAFT_VOTER
    cluster_id: str | None
    voter_id: int
    voter_directory_id: bytes = NO_DIRECTORY


class RemoveRaftVoterResponse(Value):
    """RemoveRaftVoter (81)."""

    API_KEY: ClassVar[int] = ApiKey.REMOVE_RAFT_VOTER
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


class KRaftVersionFeature(Value):
    """The kraft.versions that a voter can."""

    min_supported_version: int
    max_supported_version: int


class UpdateRaftVoterRequest(Value):
    """UpdateRaftVoter (82)."""

    API_KEY: ClassVar[int] = ApiKey.UPDATE_RAFT_VOTER
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: bytes
    listeners: tuple[VoterListener, ...]
    k_raft_version_feature: KRaftVersionFeature


class CurrentLeader(Value):
    """The leader of an epoch, and where it listens on the listener that was asked; -1 and empty while unknown."""

    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0


class UpdateRaftVoterResponse(Value):
    """UpdateRaftVoter (82)."""

    API_KEY: ClassVar[int] = ApiKey.UPDATE_RAFT_VOTER
    error_code: ErrorCode = ErrorCode.NONE
    current_leader: CurrentLeader = CurrentLeader()
    throttle_time_ms: int = 0


class ApiVersionsRequest(Value):
    """ApiVersions (18), of a version that carries features."""

    API_KEY: ClassVar[int] = ApiKey.API_VERSIONS
    client_software_name: str
    client_software_version: str


class ApiRange(Value):
    """The versions of an API."""

    api_key: int
    min_version: int
    max_version: int


class FeatureRange(Value):
    """The levels of a feature that a node can."""

    name: str
    min_version: int
    max_version: int


class FinalizedLevel(Value):
    """The level of a feature that the cluster is at."""

    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(Value):
    """ApiVersions (18)."""

    API_KEY: ClassVar[int] = ApiKey.API_VERSIONS
    error_code: ErrorCode
    api_keys: tuple[ApiRange, ...] = ()
    throttle_time_ms: int = 0
    supported_features: tuple[FeatureRange, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedLevel, ...] = ()
    zk_migration_ready: bool = False
