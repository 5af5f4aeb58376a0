"""Requests and answers by which a broker lives: registration, heartbeat, producer ids. A node starts with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

if TYPE_CHECKING:
    from klamm.protocol.features import VersionRange


class Listener(Value):
    """One advertised endpoint of a broker; the protocol's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class SupportedFeature(Value):
    """The levels of a feature that a broker can work with."""

    name: str
    min_supported_version: int
    max_supported_version: int


def supported(ranges: Mapping[str, VersionRange]) -> tuple[SupportedFeature, ...]:
    """The features of a registration."""
    return tuple(SupportedFeature(name, found.min_version, found.max_version) for name, found in ranges.items())


class BrokerRegistrationRequest(Value):
    """BrokerRegistration (62)."""

    API_KEY: ClassVar[int] = ApiKey.BROKER_REGISTRATION
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1


class BrokerRegistrationResponse(Value):
    """BrokerRegistration (62)."""

    API_KEY: ClassVar[int] = ApiKey.BROKER_REGISTRATION
    error_code: ErrorCode = ErrorCode.NONE
    broker_epoch: int = -1
    throttle_time_ms: int = 0


class BrokerHeartbeatRequest(Value):
    """BrokerHeartbeat (63); `cordoned_log_dirs` None means unknown, and changes nothing (KIP-1066)."""

    API_KEY: ClassVar[int] = ApiKey.BROKER_HEARTBEAT
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


class BrokerHeartbeatResponse(Value):
    """BrokerHeartbeat (63)."""

    API_KEY: ClassVar[int] = ApiKey.BROKER_HEARTBEAT
    error_code: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    throttle_time_ms: int = 0


class AssignReplicasToDirsRequest(Value):
    """AssignReplicasToDirs (73): (directory id, topic id, partition); `directory_assignments` has the wire's shape."""

    broker_id: int
    broker_epoch: int
    assignments: tuple[tuple[bytes, bytes, int], ...]


class AssignReplicasToDirsResponse(Value):
    """AssignReplicasToDirs (73): an error for the whole, or one for each assignment."""

    error_code: ErrorCode = ErrorCode.NONE
    partition_errors: tuple[ErrorCode, ...] = ()


class UnregisterBrokerRequest(Value):
    """UnregisterBroker (64)."""

    API_KEY: ClassVar[int] = ApiKey.UNREGISTER_BROKER
    broker_id: int


class UnregisterBrokerResponse(Value):
    """UnregisterBroker (64)."""

    API_KEY: ClassVar[int] = ApiKey.UNREGISTER_BROKER
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


class AllocateProducerIdsRequest(Value):
    """AllocateProducerIds (67)."""

    API_KEY: ClassVar[int] = ApiKey.ALLOCATE_PRODUCER_IDS
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(Value):
    """AllocateProducerIds (67): the ids `[producer_id_start, producer_id_start + producer_id_len)`."""

    API_KEY: ClassVar[int] = ApiKey.ALLOCATE_PRODUCER_IDS
    error_code: ErrorCode = ErrorCode.NONE
    producer_id_start: int = 0
    producer_id_len: int = 0
    throttle_time_ms: int = 0


class ControllerRegistrationRequest(Value):
    """ControllerRegistration (70): a controller, its endpoints and its supported features (KIP-919)."""

    API_KEY: ClassVar[int] = ApiKey.CONTROLLER_REGISTRATION
    controller_id: int
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]
    zk_migration_ready: bool = False


class ControllerRegistrationResponse(Value):
    """ControllerRegistration (70)."""

    API_KEY: ClassVar[int] = ApiKey.CONTROLLER_REGISTRATION
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0
