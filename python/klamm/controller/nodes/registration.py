"""The checks on a broker registration, and its record (`ClusterControlManager.registerBroker`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm._engine.metadata import BrokerInfo
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import DIRECTORY_ASSIGNMENT_LEVEL, METADATA_VERSION, NOT_SUPPORTED, VersionRange
from klamm.protocol.generated.metadata_records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from klamm.protocol.messages.registration import BrokerRegistrationRequest, Listener
from klamm.protocol.value import Value


class BrokerSettings(Value):
    """The node's settings that the checks of a registration use."""

    cluster_id: str
    session_timeout_ms: int = 9_000
    own_incarnation_id: bytes | None = None
    """The broker in the controller's own process, if there is one."""


def check_identity(
    settings: BrokerSettings, request: BrokerRegistrationRequest, existing: BrokerInfo | None, *, has_session: bool
) -> None:
    """Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION or BROKER_ID_NOT_REGISTERED.

    `has_session`: whether the existing incarnation sent a heartbeat within the session timeout.
    """
    if request.cluster_id != settings.cluster_id:
        text = f"This is cluster {settings.cluster_id}, not {request.cluster_id}."
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    is_other = existing is not None and existing.incarnation_id != request.incarnation_id
    # The broker of this process: an earlier one with its id is dead, or it would still hold the directories' locks.
    is_ours = request.incarnation_id == settings.own_incarnation_id
    if is_other and has_session and not is_ours:
        text = (
            f"Another broker is registered with broker id {request.broker_id}. If it was just restarted, retry "
            "after the session of its previous process has ended."
        )
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
    if request.is_migrating_zk_broker:
        text = "This controller does not register brokers of a ZooKeeper cluster."
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)


def ranges_of(request: BrokerRegistrationRequest) -> dict[str, VersionRange]:
    """The levels of each feature that the broker works with."""
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in request.features
    }


def _is_reserved(directory_id: bytes) -> bool:
    """The first hundred directory ids are reserved (KIP-858, `DirectoryId`)."""
    return int.from_bytes(directory_id, "big") < 100


def check_listeners(listeners: Sequence[Listener]) -> None:
    """Raises INVALID_REGISTRATION for a listener without a name, which no record may have."""
    if not all(listener.name for listener in listeners):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "A listener of the registration has no name.")


def check_log_dirs(state: Speculation, request: BrokerRegistrationRequest) -> None:
    """Raises INVALID_REGISTRATION unless the directories are named, real, and no other broker's (KIP-858)."""
    if state.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        return
    dirs = request.log_dirs
    wrong = None
    if not dirs:
        wrong = "The registration names no log directory."
    elif any(map(_is_reserved, dirs)):
        wrong = "The registration holds a reserved directory id."
    elif len(set(dirs)) != len(dirs):
        wrong = "The registration names a directory twice."
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)
    for other in map(state.image.broker, state.image.broker_ids()):
        if other is not None and other.id != request.broker_id and not set(dirs).isdisjoint(other.log_dirs):
            text = f"Broker {other.id} is registered with a directory of this registration."
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, text)


def registration_record(
    state: Speculation, request: BrokerRegistrationRequest, amended: BrokerInfo | None
) -> RegisterBrokerRecord:
    """The record: a new incarnation begins fenced, with the next offset as epoch; an updated one keeps both."""
    with_dirs = state.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=state.next_offset if amended is None else amended.epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
        log_dirs=request.log_dirs if with_dirs else (),
    )


def check_broker_features(requested: Mapping[str, VersionRange], finalized: Mapping[str, int]) -> None:
    """Refuse a broker that cannot work at a finalized level (`ClusterControlManager.registerBroker`).

    A feature that the broker does not list counts as 0..0. Raises UNSUPPORTED_VERSION or INVALID_REGISTRATION.
    """
    for name, found in requested.items():
        _check_registration_range(name, found, finalized)
    if METADATA_VERSION not in requested:
        text = f"The registration does not say which {METADATA_VERSION} the broker works with."
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, text)
    for name in finalized.keys() - requested.keys():
        _check_registration_range(name, NOT_SUPPORTED, finalized)


def _check_registration_range(name: str, found: VersionRange, finalized: Mapping[str, int]) -> None:
    level = finalized.get(name, 0)
    if level not in found:
        text = f"The cluster is at {name} {level}. The broker works with {found}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
