"""The features that a node of Kafka 4.3 knows, and their levels (`MetadataVersion`, `Feature`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.protocol.value import Value

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
STREAMS_VERSION: Final = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"


class VersionRange(Value):
    """The levels `[min_version, max_version]` of a feature; (0, 0) means not supported."""

    min_version: int
    max_version: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_version <= level <= self.max_version

    def __str__(self) -> str:
        return f"{self.min_version}-{self.max_version}"


NOT_SUPPORTED: Final = VersionRange(0, 0)

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, 30),
    KRAFT_VERSION: VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    GROUP_VERSION: VersionRange(0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
    "share.version": VersionRange(0, 1),
    STREAMS_VERSION: VersionRange(0, 1),
}
"""The ranges that a node of Kafka 4.3 advertises (`QuorumFeatures`)."""


NOOP_RECORD_LEVEL: Final = 5
METADATA_TRANSACTION_LEVEL: Final = 13
CONTROLLER_REGISTRATION_LEVEL: Final = 15
DIRECTORY_ASSIGNMENT_LEVEL: Final = 17
CORDONED_LOG_DIRS_LEVEL: Final = 30

FEATURE_DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23},
}
"""The levels of other features that a feature's level requires (`FeatureVersion.dependencies`)."""

DEFAULTS_OF_RELEASES: Final[Mapping[str, tuple[int, int]]] = {
    KRAFT_VERSION: (1, 21),
    "transaction.version": (2, 24),
    GROUP_VERSION: (1, 22),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (1, 26),
    "share.version": (1, 28),
    STREAMS_VERSION: (1, 29),
}
"""Default levels of Apache Kafka 4.3, each from a level of metadata.version on; 0 before (`Feature`)."""

SERVED_FEATURES: Final = (
    "transaction.version",
    GROUP_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    "share.version",
    STREAMS_VERSION,
)
"""The features that a newly formatted directory gets at their default level; klamm has no APIs for the others yet."""
