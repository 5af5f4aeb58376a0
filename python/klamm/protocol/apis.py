"""The one table of APIs, by key: it is in the engine (rust/wire/src/api/table.rs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm._engine.protocol import Api, apis
from klamm.protocol.api_key import ApiKey

APIS: Final[Mapping[int, Api]] = {api.key: api for api in apis()}

RAFT_APIS: Final = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
)
"""The requests between replicas of the metadata log, on controller listeners."""

VOTER_APIS: Final = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER)
"""Changes of the quorum's voters, on controller listeners. Brokers forward the first two."""
