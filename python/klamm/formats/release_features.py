"""The feature levels of Apache Kafka's releases, and the dependencies of levels, for planning upgrades."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.formats.storage import check_feature, level_of_release
from klamm.protocol.features import (
    DEFAULTS_OF_RELEASES,
    FEATURE_DEPENDENCIES,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)


def levels_of(release: str | None) -> dict[str, int]:
    """The level of every feature, metadata.version first; None means the newest release. Raises NodeConfigError."""
    newest = SUPPORTED_FEATURES[METADATA_VERSION].max_version
    metadata_level = newest if release is None else level_of_release(release)
    others = {name: level if metadata_level >= since else 0 for name, (level, since) in DEFAULTS_OF_RELEASES.items()}
    return {METADATA_VERSION: metadata_level} | others


def needs_of(name: str, level: int) -> Mapping[str, int]:
    """The least levels of other features. Raises NodeConfigError for a level that there is not."""
    check_feature(name, level)
    return FEATURE_DEPENDENCIES.get((name, level), {})
