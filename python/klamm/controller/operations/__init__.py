"""The operations of the active controller, each registered once: its messages, what decides it, and how it is refused.

The `Operation` determines how the driver runs it, how handlers decode and encode its messages, how a node sends it to a
controller of another process, and how a broker forwards it. Operations are registered in a module for each kind, which
is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from klamm.controller.operations.operation import Operation
from klamm.protocol.api_key import ApiKey

MODULES: Final[Mapping[str, tuple[ApiKey, ...]]] = {
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS),
    "replicas": (
        ApiKey.ALTER_PARTITION,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "configs": (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    "features": (ApiKey.UPDATE_FEATURES,),
    "client_quotas": (ApiKey.ALTER_CLIENT_QUOTAS,),
    "nodes": (
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
}
"""Where each operation is registered."""

_MODULE_OF: Final = {key: module for module, keys in MODULES.items() for key in keys}


def operations_in(module: str) -> dict[ApiKey, Operation[Any, Any]]:
    """The operations of one of `MODULES`, by key."""
    values = vars(import_module(f"{__name__}.{module}")).values()
    return {one.api_key: one for one in values if isinstance(one, Operation)}


def operation_of(api_key: int) -> Operation[Any, Any] | None:
    """The operation of an API; None where the controller's core does not decide it."""
    module = _MODULE_OF.get(ApiKey(api_key))
    return None if module is None else operations_in(module)[ApiKey(api_key)]
