"""Describe and change feature levels over the wire, through any broker or controller (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm.admin.client import check
from klamm.admin.quorum import QuorumClient
from klamm.client.connection import Connection
from klamm.protocol.features import VersionRange
from klamm.protocol.messages.feature_updates import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from klamm.protocol.messages.voter_messages import ApiVersionsRequest, ApiVersionsResponse

# Up to version 3, a node leaves out features whose minimum level is 0.
API_VERSIONS_VERSION: Final = 4


class Feature(NamedTuple):
    """The levels of a feature that the node supports, and the finalized level that it knows; 0: disabled."""

    name: str
    supported: VersionRange
    finalized: int


def describe(client: QuorumClient) -> list[Feature]:
    """The features by name. Raises ClientError."""

    def ask(connection: Connection) -> ApiVersionsResponse:
        answer = connection.ask(ApiVersionsRequest("klamm-cli", "1"), ApiVersionsResponse, API_VERSIONS_VERSION)
        check(answer.error_code, "the features cannot be described")
        return answer

    answer = client.ask(ask)
    finalized = {level.name: level.max_version_level for level in answer.finalized_features}
    supported = {one.name: VersionRange(one.min_version, one.max_version) for one in answer.supported_features}
    return [Feature(name, supported[name], finalized.get(name, 0)) for name in sorted(supported)]


def update(client: QuorumClient, levels: Mapping[str, int], how: UpgradeType, *, dry_run: bool = False) -> None:
    """Set all of the levels, or none. Raises ClientError."""
    changes = tuple(
        FeatureUpdateKey(name, level, how, allow_downgrade=how is not UpgradeType.UPGRADE)
        for name, level in levels.items()
    )

    def ask(connection: Connection) -> None:
        answer = connection.ask(UpdateFeaturesRequest(changes, dry_run), UpdateFeaturesResponse, 2)
        check(answer.error_code, "features", answer.error_message)
        for result in answer.results:
            check(result.error_code, f"{result.feature} was not changed", result.error_message)

    client.ask(ask)
