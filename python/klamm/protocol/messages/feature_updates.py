"""UpdateFeatures: the request and its answer (KIP-584, KIP-778)."""

from __future__ import annotations

import enum
from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class UpgradeType(enum.IntEnum):
    """How a client wants a feature's level changed (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdateKey(Value):
    """A feature and the level it shall have; v0 says `allow_downgrade`, later versions `upgrade_type`."""

    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE
    allow_downgrade: bool = False


class UpdateFeaturesRequest(Value):
    """UpdateFeatures (57)."""

    API_KEY: ClassVar[int] = ApiKey.UPDATE_FEATURES
    feature_updates: tuple[FeatureUpdateKey, ...]
    validate_only: bool = False
    timeout_ms: int = 60_000


class UpdatableFeatureResult(Value):
    """The result for one feature; only up to v1, and only if all succeeded."""

    feature: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ErrorCode.NONE.name


class UpdateFeaturesResponse(Value):
    """UpdateFeatures (57)."""

    API_KEY: ClassVar[int] = ApiKey.UPDATE_FEATURES
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    results: tuple[UpdatableFeatureResult, ...] = ()
    throttle_time_ms: int = 0
