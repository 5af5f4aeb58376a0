"""The options of a replica, besides its identity."""

from typing import Final, NamedTuple

from klamm.raft.config import RaftConfig
from klamm.raft.log.snapshots import SnapshotConfig

# Half of Kafka's: a program that embeds a quorum waits for its leader.
QUORUM: Final = RaftConfig(
    election_timeout_ms=500,
    fetch_timeout_ms=1000,
    request_timeout_ms=1000,
    election_backoff_max_ms=500,
    fetch_max_wait_ms=250,
)


class ReplicaConfig(NamedTuple):
    """Settings of a replica; those of all replicas of a cluster should be the same."""

    timeout_s: float = 10.0
    """How long execute and read wait if they have no timeout of their own."""
    raft: RaftConfig = QUORUM
    """Time-outs of the quorum: a leader that is silent for `fetch_timeout_ms` is replaced, about a second later."""
    snapshots: SnapshotConfig = SnapshotConfig()
    """When the state is written, and how much of the log stays."""
    in_flight_max: int = 10_000
    """The maximum number of commands that wait for their result; more wait to be sent."""
    segment_bytes: int = 64 << 20
    """Size of the log's files."""
    flush: bool = True
    """False: nothing is synced to the disk. For tests: a power cut loses acknowledged commands."""
