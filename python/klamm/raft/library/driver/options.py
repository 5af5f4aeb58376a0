"""The options of a replica besides its state and its directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from klamm.raft.library.driver.config import ReplicaConfig
from klamm.raft.library.driver.network import Network


class ReplicaOptions(TypedDict, total=False):
    """The named arguments of `Replica`, which documents them, for classes that pass them on."""

    node_id: int
    voters: Mapping[int, str] | None
    cluster: str
    config: ReplicaConfig | None
    address: str | None
    listen: str | None
    network: Network | None
