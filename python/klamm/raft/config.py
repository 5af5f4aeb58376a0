"""A replica's identity and Kafka's quorum timeouts (`QuorumConfig`)."""

from __future__ import annotations

from klamm.protocol.value import Value
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey


class RaftConfig(Value):
    """Each field is named for its `controller.quorum.` key; those of fetch have none in Kafka 4.2 and before."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    election_backoff_max_ms: int = 1000
    fetch_max_bytes: int = 1 << 20
    fetch_max_wait_ms: int = 500
    fetch_snapshot_max_bytes: int = 1 << 20
    auto_join: bool = False  # controller.quorum.auto.join.enable, and this replica is a controller
    bootstrap_servers: tuple[Endpoint, ...] = ()  # asked for the leader in addition to the known voters
    crash_detection: bool = True  # klamm.crash.detection
    never_votes: bool = False  # a broker alone: no quorum will ever count what its log holds
    fetches_go_on: bool = False  # the driver can take plain answers to a fetch by itself: see `effects.SendRequest`
    fetches_leased: bool = False  # the driver can answer plain fetches by itself: see `requests.FetchLease`


class Identity(Value):
    """This replica: its key (with the directory id of its metadata directory), its cluster, where it listens."""

    key: ReplicaKey
    cluster_id: str
    endpoints: tuple[Endpoint, ...] = ()
