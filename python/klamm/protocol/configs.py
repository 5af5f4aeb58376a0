"""Requests and answers about configs: AlterConfigs, IncrementalAlterConfigs, DescribeConfigs."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from klamm.protocol.errors import ErrorCode


class ResourceType(enum.IntEnum):
    """What a config belongs to; the ids of requests and of ConfigRecord (facts 1.2)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(enum.IntEnum):
    """What IncrementalAlterConfigs does to one key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(enum.IntEnum):
    """Where an effective value comes from, as DescribeConfigs and CreateTopics name it."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class AlterableConfig:
    """A key and what to do with it; legacy AlterConfigs always sets."""

    name: str
    value: str | None
    config_operation: int = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class AlterConfigsResource:
    """The changes of one resource; the type stays a number, since a peer may send any."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs (44)."""

    API_KEY: ClassVar[int] = 44
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """AlterConfigs (33): each resource's configs are replaced as a whole."""

    API_KEY: ClassVar[int] = 33
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigsResourceResponse:
    """What became of one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs (44)."""

    API_KEY: ClassVar[int] = 44
    responses: tuple[AlterConfigsResourceResponse, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    """AlterConfigs (33)."""

    API_KEY: ClassVar[int] = 33
    responses: tuple[AlterConfigsResourceResponse, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeConfigsResource:
    """A resource to describe; no keys, or null, means all of them."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """DescribeConfigs (32)."""

    API_KEY: ClassVar[int] = 32
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(frozen=True, slots=True)
class DescribeConfigsSynonym:
    """One place that could give a key its value; null for a sensitive key."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribeConfigsResourceResult:
    """One key of a resource."""

    name: str
    value: str | None
    read_only: bool
    config_source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeConfigsResult:
    """One resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """DescribeConfigs (32)."""

    API_KEY: ClassVar[int] = 32
    results: tuple[DescribeConfigsResult, ...]
    throttle_time_ms: int = 0
