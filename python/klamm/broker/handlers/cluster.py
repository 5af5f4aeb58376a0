"""DescribeCluster (60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm._engine import BrokerInfo, Image
from klamm.broker.handlers.quorum import QuorumState
from klamm.broker.request import RequestContext
from klamm.protocol.cluster import (
    NO_OPERATIONS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from klamm.protocol.codec import read, write
from klamm.protocol.errors import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2
ENDPOINT_TYPE_VERSION: Final = 1
"""The version from which on a client says whom it means."""
NO_CONTROLLER: Final = -1
ALL_CLUSTER_OPERATIONS: Final = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, both config operations and IDEMPOTENT_WRITE: where no authorizer is."""


class ClusterHandlers:
    """Serves DescribeCluster: brokers from the committed image, controllers from the quorum (KIP-919)."""

    def __init__(
        self,
        cluster_id: str,
        image: Callable[[], Image],
        controller_id: Callable[[], int],
        quorum: Callable[[], QuorumState | None],
    ) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._controller_id = controller_id
        self._quorum = quorum

    async def describe_cluster(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The nodes as clients of this listener reach them."""
        request = read(DescribeClusterRequest, version, body)
        wanted = CONTROLLERS if context.on_controller else BROKERS
        if request.endpoint_type != wanted:
            return write(_refused(request.endpoint_type, version), version)
        if context.on_controller:
            nodes = self._controllers(context.listener)
        else:
            nodes = self._brokers(context.listener, include_fenced=request.include_fenced_brokers)
        controller_id = self._controller_id()
        answer = DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=controller_id if any(node.broker_id == controller_id for node in nodes) else NO_CONTROLLER,
            endpoint_type=request.endpoint_type,
            brokers=nodes,
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
            ),
        )
        return write(answer, version)

    def _brokers(self, listener: str, *, include_fenced: bool) -> tuple[DescribeClusterBroker, ...]:
        image = self._image()
        brokers = [found for broker in image.broker_ids() if (found := image.broker(broker)) is not None]
        shown = (broker for broker in brokers if include_fenced or not broker.fenced)
        return tuple(node for broker in shown if (node := _node(broker, listener)) is not None)

    def _controllers(self, listener: str) -> tuple[DescribeClusterBroker, ...]:
        quorum = self._quorum()
        return tuple(
            DescribeClusterBroker(node_id, host, port)
            for node_id, endpoints in (() if quorum is None else quorum.nodes)
            for name, host, port in endpoints
            if name == listener
        )


def _refused(endpoint_type: int, version: int) -> DescribeClusterResponse:
    known = endpoint_type in (BROKERS, CONTROLLERS)
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if version < ENDPOINT_TYPE_VERSION:
        code = ErrorCode.INVALID_REQUEST
    text = "The request was sent to an endpoint of the other type than" if known else "There is no endpoint type"
    return DescribeClusterResponse(error_code=code, error_message=f"{text} {endpoint_type}")


def _node(broker: BrokerInfo, listener: str) -> DescribeClusterBroker | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener:
            return DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
    return None
