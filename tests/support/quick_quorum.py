"""Timeouts of replicas in one process, where messages arrive immediately."""

from __future__ import annotations

from typing import Final

from klamm.raft import RaftConfig, ReplicaConfig

QUICK: Final = RaftConfig(
    election_timeout_ms=60,
    fetch_timeout_ms=120,
    request_timeout_ms=100,
    retry_backoff_ms=5,
    election_backoff_max_ms=60,
    fetch_max_wait_ms=30,
)
CONFIG: Final = ReplicaConfig(raft=QUICK, flush=False, timeout_s=30)
