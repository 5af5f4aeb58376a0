"""Checks a principal's right to requests that concern the cluster as a whole (KIP-11).

The engine checks requests of the fast path for single topics. Handlers will check those for topics, groups and other
resources with the same `Authorizer`, once an authorizer exists that refuses anything.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol

from klamm.broker.request import RequestContext
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS, RAFT_APIS
from klamm.protocol.errors import ErrorCode

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type Cluster."""


class Authorizer(Protocol):
    """Decides whether an operation is allowed (`authorizer.class.name`)."""

    def allows(self, context: RequestContext, operation: str, resource: str, name: str) -> bool:
        """Whether the request's principal may do this, from its address; the words are those of `Api.checks`."""
        ...


class AllowAll:
    """Everything is allowed: no authorizer is configured."""

    def allows(self, context: RequestContext, operation: str, resource: str, name: str) -> bool:
        """Always true."""
        return True


def refusal(authorizer: Authorizer, context: RequestContext, *, on_controller: bool) -> ErrorCode | None:
    """The error code of a request that asks something of the cluster without the right to it; else None.

    `on_controller` tells whether the controller decides it, which a forwarded request did not reach by its listener.
    """
    operations = cluster_operations(context.api_key, on_controller=on_controller)
    if not operations or any(authorizer.allows(context, one, "Cluster", CLUSTER_NAME) for one in operations):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@cache
def cluster_operations(api_key: int, *, on_controller: bool) -> tuple[str, ...]:
    """The operations on the cluster of which a request needs one; none where it depends on what else it names."""
    if on_controller and api_key in RAFT_APIS:
        return ("ClusterAction",)
    api = APIS.get(api_key)
    # A broker forwards requests without authorizing them, and describes the cluster to every client (`KafkaApis`).
    if api is None or (not on_controller and (api.is_forwarded or api_key == ApiKey.DESCRIBE_CLUSTER)):
        return ()
    is_of_cluster = all(resource == "Cluster" for _, resource in api.checks)
    return tuple(operation for operation, _ in api.checks) if is_of_cluster else ()
