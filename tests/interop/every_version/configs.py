"""Configurations."""

from __future__ import annotations

from typing import Any

from klamm.protocol.api_key import ApiKey
from tests.interop.peers import Both


def resource(kind: int, name: str, *configs: tuple[str, str | None], operation: int = 0) -> dict[str, Any]:
    values = [{"name": key, "value": value, "config_operation": operation} for key, value in configs]
    return {"resource_type": kind, "resource_name": name, "configs": values}


def configs(both: Both) -> None:
    """DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""
    for names in (None, [], ["retention.ms", "nope"]):
        asked = [{"resource_type": 2, "resource_name": "c2", "configuration_keys": names}]
        both.every(ApiKey.DESCRIBE_CONFIGS, f"topic, {names}", resources=asked, include_synonyms=True)
    for kind, name in [(2, "nope"), (2, ""), (2, "a b"), (4, "7"), (4, "x"), (99, "x"), (0, ""), (1, "x")]:
        both.every(
            ApiKey.DESCRIBE_CONFIGS, f"type {kind} {name!r}", resources=[{"resource_type": kind, "resource_name": name}]
        )
    changes = [("retention.ms", "77")]
    for validate in (True, False):
        for key, more in ((ApiKey.ALTER_CONFIGS, {}), (ApiKey.INCREMENTAL_ALTER_CONFIGS, {"operation": 0})):
            several = [resource(2, "c2", *changes, **more), resource(2, "nope", *changes, **more)]
            several += [
                resource(2, "c3", ("retention.ms", "x"), **more),
                resource(4, "1", ("background.threads", "11")),
            ]
            both.every(key, f"{validate=}", resources=several, validate_only=validate)
            asked = [{"resource_type": 2, "resource_name": "c2", "configuration_keys": ["retention.ms"]}]
            both.ask(
                ApiKey.DESCRIBE_CONFIGS, 4, f"after API {key}, {validate=}", resources=asked, include_synonyms=True
            )
    both.every(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "delete",
        resources=[resource(2, "c2", *changes, operation=1)],
        validate_only=False,
    )
    both.every(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "of metrics",
        resources=[resource(16, "m", ("interval.ms", "1000"))],
        validate_only=False,
    )
    both.every(ApiKey.LIST_CONFIG_RESOURCES, "all", resource_types=[])
    for kind in (2, 4, 8, 16, 32, 99):
        both.every(ApiKey.LIST_CONFIG_RESOURCES, f"type {kind}", resource_types=[kind])
