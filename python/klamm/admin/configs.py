"""Configs over the wire: describe, set, unset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Client, check
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.api_key import ApiKey

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}

SOURCES: Final = {
    1: "set on the topic",
    2: "set on the broker",
    3: "set on all brokers",
    4: "server.properties",
    5: "default",
    6: "set on the logger",
    7: "set on the subscription",
    8: "set on the group",
}
"""Where a value comes from, as DescribeConfigs counts it."""

_SET: Final = 0
_UNSET: Final = 1


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
    """The configs of a resource, by key; `kind` as in RESOURCE_TYPES, an empty broker name means all brokers."""
    resource = {"resource_type": _type_id(kind), "resource_name": name, "configuration_keys": None}
    answer = _responsible(client, kind, name).request(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=False,
        include_documentation=with_documentation,
    )
    (result,) = answer.results
    check(result.error_code, f"{kind} {name}", result.error_message)
    entries = [
        Entry(
            config.name,
            config.value,
            SOURCES.get(config.config_source, str(config.config_source)),
            config.config_source == 5,
            config.read_only,
            config.is_sensitive,
            getattr(config, "documentation", None),
        )
        for config in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


def alter(
    client: Client, kind: str, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set keys, or unset those whose value is None; the others stay. Raises ClientError."""
    configs = [
        {"name": key, "config_operation": _UNSET if value is None else _SET, "value": value}
        for key, value in changes.items()
    ]
    resource = {"resource_type": _type_id(kind), "resource_name": name, "configs": configs}
    answer = _responsible(client, kind, name).request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
    )
    for result in answer.responses:
        check(result.error_code, f"{kind} {name}", result.error_message)


def parse_changes(pairs: Sequence[str]) -> dict[str, str | None]:
    """`key=value` each. Raises ClientError."""
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
    """A broker's own configs are known to it alone; anything else is known to all."""
    if kind == "broker" and name:
        if not name.isdecimal():
            raise ClientError(f"broker '{name}': give a broker's number, or nothing for all brokers")
        return client.broker(int(name))
    return client.any
