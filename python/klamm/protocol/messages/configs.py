"""Requests and answers about configs: AlterConfigs, IncrementalAlterConfigs, DescribeConfigs."""

from __future__ import annotations

import enum
from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


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


class AlterableConfig(Value):
    """A key and what to do with it; legacy AlterConfigs always sets."""

    name: str
    value: str | None
    config_operation: int = ConfigOperation.SET


class AlterConfigsResource(Value):
    """The changes of one resource; the type stays a number, since a peer may send any."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class IncrementalAlterConfigsRequest(Value):
    """IncrementalAlterConfigs (44)."""

    API_KEY: ClassVar[int] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


class AlterConfigsRequest(Value):
    """AlterConfigs (33): each resource's configs are replaced as a whole."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_CONFIGS
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


class AlterConfigsResourceResponse(Value):
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class IncrementalAlterConfigsResponse(Value):
    """IncrementalAlterConfigs (44)."""

    API_KEY: ClassVar[int] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    responses: tuple[AlterConfigsResourceResponse, ...]
    throttle_time_ms: int = 0


class AlterConfigsResponse(Value):
    """AlterConfigs (33)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_CONFIGS
    responses: tuple[AlterConfigsResourceResponse, ...]
    throttle_time_ms: int = 0


class DescribeConfigsResource(Value):
    """A resource to describe; no keys, or null, means all of them."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(Value):
    """DescribeConfigs (32)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CONFIGS
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class DescribeConfigsSynonym(Value):
    """One place that could give a key its value; null for a sensitive key."""

    name: str
    value: str | None
    source: ConfigSource


class DescribeConfigsResourceResult(Value):
    """One key of a resource."""

    name: str
    value: str | None
    read_only: bool
    config_source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0
    documentation: str | None = None


class DescribeConfigsResult(Value):
    """One resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Value):
    """DescribeConfigs (32)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CONFIGS
    results: tuple[DescribeConfigsResult, ...]
    throttle_time_ms: int = 0
