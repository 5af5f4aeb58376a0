"""Configs over the wire: describe, set, unset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Client, check
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}

SOURCES: Final[Mapping[int, str]] = {
    ConfigSource.TOPIC_CONFIG: "set on the topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "set on the broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "set on all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "server.properties",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "set on the logger",
    ConfigSource.CLIENT_METRICS_CONFIG: "set on the subscription",
    ConfigSource.GROUP_CONFIG: "set on the group",
}
"""The source of a value in words; a response may have another number."""
SET_ON_TOPIC: Final = SOURCES[ConfigSource.TOPIC_CONFIG]

DESCRIBE_CONFIGS_VERSION_MAX: Final = 4
INCREMENTAL_ALTER_CONFIGS_VERSION_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a resource."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


def describe(client: Client, kind: str, name: str, *, with_documentation: bool = False) -> list[Entry]:
    """The configs of a resource by key; `kind` as in RESOURCE_TYPES. An empty broker name means all brokers."""
    resource = DescribeConfigsResource(_type_id(kind), name)
    request = DescribeConfigsRequest((resource,), include_documentation=with_documentation)
    connection = _responsible(client, kind, name)
    answer = connection.ask(request, DescribeConfigsResponse, DESCRIBE_CONFIGS_VERSION_MAX)
    (result,) = answer.results
    check(result.error_code, f"{kind} {name}", result.error_message)
    entries = [
        Entry(
            config.name,
            config.value,
            SOURCES.get(config.config_source, str(config.config_source)),
            config.config_source == ConfigSource.DEFAULT_CONFIG,
            config.read_only,
            config.is_sensitive,
            config.documentation,
        )
        for config in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


def alter(
    client: Client, kind: str, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set keys, or unset those with a value of None. Other keys are not changed. Raises ClientError."""
    configs = tuple(
        AlterableConfig(key, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for key, value in changes.items()
    )
    request = IncrementalAlterConfigsRequest((AlterConfigsResource(_type_id(kind), name, configs),), validate_only)
    connection = _responsible(client, kind, name)
    answer = connection.ask(request, IncrementalAlterConfigsResponse, INCREMENTAL_ALTER_CONFIGS_VERSION_MAX)
    for result in answer.responses:
        check(result.error_code, f"{kind} {name}", result.error_message)


def parse_changes(pairs: Sequence[str]) -> dict[str, str | None]:
    """Parse `key=value` pairs. Raises ClientError."""
    changes: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ClientError(f"'{pair}' is not key=value")
        changes[key.strip()] = value.strip()
    return changes


def _type_id(kind: str) -> int:
    if kind not in RESOURCE_TYPES:
        raise ClientError(f"'{kind}' has no configs: use one of {', '.join(RESOURCE_TYPES)}")
    return RESOURCE_TYPES[kind]


def _responsible(client: Client, kind: str, name: str) -> Connection:
    """The connection for a resource: only a broker itself knows its configs, any broker knows the others."""
    if kind == "broker" and name:
        if not name.isdecimal():
            raise ClientError(f"broker '{name}': give a broker's number, or nothing for all brokers")
        return client.broker(int(name))
    return client.any
