"""Feature levels: which node supports which, and which changes are allowed (KIP-584, `FeatureControlManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    FEATURE_DEPENDENCIES,
    KRAFT_VERSION,
    METADATA_VERSION,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    VersionRange,
)
from klamm.protocol.messages.feature_updates import FeatureUpdateKey, UpgradeType
from klamm.protocol.metadata_levels import METADATA_LEVELS
from klamm.protocol.value import Value, field

Ranges = Mapping[str, VersionRange]
Levels = Mapping[str, int]

_MINIMUM_METADATA_LEVEL: Final = SUPPORTED_FEATURES[METADATA_VERSION].min_version


class Supporters(Value):
    """The supported ranges of all nodes that must support a level.

    `voters` are the ids of the quorum; from metadata.version 15 each of them must have registered (KIP-919).
    """

    local_id: int
    local: Ranges
    brokers: Mapping[int, Ranges] = field(default_factory=dict)
    controllers: Mapping[int, Ranges] = field(default_factory=dict)
    voters: frozenset[int] = frozenset()
    kraft_refusal: str | None = None
    """Why the quorum cannot go to the next kraft.version."""

    def check(self, feature: str, level: int, metadata_level: int) -> None:
        """Raises INVALID_UPDATE_VERSION with the first node that does not support `feature` at `level`."""
        _check_range(feature, level, f"Local controller {self.local_id}", self.local)
        for broker_id, ranges in self.brokers.items():
            _check_range(feature, level, f"Broker {broker_id}", ranges)
        if metadata_level < CONTROLLER_REGISTRATION_LEVEL:
            return
        for controller_id, ranges in self.controllers.items():
            if controller_id != self.local_id:
                _check_range(feature, level, f"Controller {controller_id}", ranges)
        for voter in sorted(self.voters - {self.local_id} - self.controllers.keys()):
            raise _invalid(
                feature,
                level,
                f"controller {voter} has not registered, so it is not known whether it supports this",
            )


def _check_range(feature: str, level: int, who: str, ranges: Ranges) -> None:
    found = ranges.get(feature, NOT_SUPPORTED)
    if level not in found:
        cannot = "does not support this feature." if found.max_version == 0 else f"only supports versions {found}"
        raise _invalid(feature, level, f"{who} {cannot}")


def _invalid(feature: str, level: int, reason: str) -> KafkaError:
    text = f"Invalid update version {level} for feature {feature}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def upgrade_type(update: FeatureUpdateKey) -> UpgradeType:
    """How the client wants the level changed; v0 had only a flag. Raises INVALID_UPDATE_VERSION."""
    if update.allow_downgrade:
        return UpgradeType.SAFE_DOWNGRADE
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        reason = "Its upgrade type is none of upgrade, safe downgrade and unsafe downgrade."
        raise _invalid(update.feature, update.max_version_level, reason) from None


def changed_levels(updates: Iterable[FeatureUpdateKey], finalized: Levels, supporters: Supporters) -> dict[str, int]:
    """The levels to write for `updates`, all or nothing. Raises INVALID_UPDATE_VERSION for the first that is wrong.

    `finalized` holds metadata.version and, from the quorum's own state, kraft.version.
    """
    latest = {update.feature: update for update in updates}
    proposed = {**finalized, **{name: update.max_version_level for name, update in latest.items()}}
    changes: dict[str, int] = {}
    for name, update in latest.items():
        _check_update(update, finalized, proposed, supporters)
        # The level of kraft.version lives in the quorum's control records: the same one is not written again.
        if name != KRAFT_VERSION or update.max_version_level != finalized.get(name, 0):
            changes[name] = update.max_version_level
    return changes


def _check_update(update: FeatureUpdateKey, finalized: Levels, proposed: Levels, supporters: Supporters) -> None:
    name, level = update.feature, update.max_version_level
    how = upgrade_type(update)
    current = finalized.get(name, 0)
    if level < 0:
        raise _invalid(name, level, "Levels begin at 0.")
    supporters.check(name, level, finalized[METADATA_VERSION])
    if level < current and how is UpgradeType.UPGRADE:
        raise _invalid(name, level, "A lower version needs the upgrade type safe or unsafe downgrade.")
    if level > current and how is not UpgradeType.UPGRADE:
        raise _invalid(name, level, "This level is above the present one: the upgrade type must be upgrade.")
    if name == METADATA_VERSION:
        _check_metadata_downgrade(current, level, how)
    elif name == KRAFT_VERSION:
        if level < current:
            raise _invalid(name, level, "What the quorum's log holds cannot be taken back.")
        if level > current and supporters.kraft_refusal is not None:
            raise _invalid(name, level, supporters.kraft_refusal)
    else:
        _check_dependencies(name, level, proposed)


def _check_metadata_downgrade(current: int, level: int, how: UpgradeType) -> None:
    lost = any(each.changes_metadata for each in METADATA_LEVELS if level < each.level <= current)
    if level >= current or not lost:
        return
    unsafe = how is UpgradeType.UNSAFE_DOWNGRADE
    reason = (
        "Metadata would be lost, and there is no unsafe downgrade that drops it."
        if unsafe
        else "Metadata that the lower level cannot hold would be lost."
    )
    text = f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_dependencies(name: str, level: int, proposed: Levels) -> None:
    needed = {METADATA_VERSION: _MINIMUM_METADATA_LEVEL} if level >= 1 else {}
    for other, minimum in {**needed, **FEATURE_DEPENDENCIES.get((name, level), {})}.items():
        if proposed.get(other, 0) < minimum:
            raise _invalid(name, level, f"{name} could not be set to {level} because it depends on {other} {minimum}")
