"""DescribeCluster (60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm._engine import BrokerInfo, Image
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
ALL_CLUSTER_OPERATIONS: Final = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, both config operations and IDEMPOTENT_WRITE: where no authorizer is."""


class ClusterHandlers:
    """Serves DescribeCluster from the committed image."""

    def __init__(self, cluster_id: str, image: Callable[[], Image], controller_id: Callable[[], int]) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._controller_id = controller_id

    async def describe_cluster(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The nodes as clients of this listener reach them."""
        request = read(DescribeClusterRequest, version, body)
        wanted = CONTROLLERS if context.on_controller else BROKERS
        if request.endpoint_type != wanted:
            return write(self._refused(request.endpoint_type), version)
        image = self._image()
        brokers = [found for broker in image.broker_ids() if (found := image.broker(broker)) is not None]
        if not request.include_fenced_brokers:
            brokers = [broker for broker in brokers if not broker.fenced]
        answer = DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=self._controller_id(),
            endpoint_type=request.endpoint_type,
            brokers=tuple(node for broker in brokers if (node := _node(broker, context.listener)) is not None),
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
            ),
        )
        return write(answer, version)

    def _refused(self, endpoint_type: int) -> DescribeClusterResponse:
        known = endpoint_type in (BROKERS, CONTROLLERS)
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = "The request was sent to an endpoint of the other type than" if known else "There is no endpoint type"
        return DescribeClusterResponse(error_code=code, error_message=f"{text} {endpoint_type}")


def _node(broker: BrokerInfo, listener: str) -> DescribeClusterBroker | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener:
            return DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
    return None
