"""DescribeCluster (60)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from klamm._engine.metadata import BrokerInfo, Image
from klamm.broker.handlers.quorum import QuorumState
from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import (
    NO_OPERATIONS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from klamm.protocol.wire.codec import read, write

BROKERS: Final = 1
CONTROLLERS: Final = 2
ENDPOINT_TYPE_VERSION: Final = 1
"""The first version in which a client names the type of endpoints."""
NO_CONTROLLER: Final = -1
ALL_CLUSTER_OPERATIONS: Final = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, both config operations and IDEMPOTENT_WRITE: all without an authorizer."""


class ClusterHandlers:
    """Serves DescribeCluster: brokers and controllers as they have registered (KIP-919)."""

    def __init__(
        self,
        cluster_id: str,
        image: Callable[[], Image],
        own_id: Callable[[], int],
        leader_id: Callable[[], int | None],
        quorum: Callable[[], QuorumState | None],
    ) -> None:
        """`leader_id` is the active controller's, `quorum` what its leader knows, None elsewhere."""
        self._cluster_id = cluster_id
        self._image = image
        self._own_id, self._leader_id = own_id, leader_id
        self._quorum = quorum

    async def describe_cluster(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The nodes as clients of this listener reach them."""
        request = read(DescribeClusterRequest, version, body)
        wanted = CONTROLLERS if context.on_controller else BROKERS
        if request.endpoint_type != wanted:
            return write(_refused(request.endpoint_type, version), version)
        if context.on_controller:
            nodes = self._controllers(context.listener)
            controller_id = self._leader_id()
        else:
            nodes = self._brokers(context.listener, include_fenced=request.include_fenced_brokers)
            # Clients cannot reach a controller: the answer names a broker, which forwards requests for the controller.
            controller_id = self._own_id()
        answer = DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=_known(controller_id, nodes),
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
        """The registered controllers; before metadata.version 15 none can, and only the leader knows the voters."""
        quorum, image = self._quorum(), self._image()
        found = {
            node_id: DescribeClusterBroker(node_id, host, port)
            for node_id, endpoints in (() if quorum is None else quorum.nodes)
            for name, host, port in endpoints
            if name == listener
        }
        registered = (image.controller(each) for each in image.controller_ids())
        found |= {
            controller.id: DescribeClusterBroker(controller.id, endpoint.host, endpoint.port)
            for controller in registered
            if controller is not None
            for endpoint in controller.endpoints
            if endpoint.name == listener
        }
        return tuple(node for _, node in sorted(found.items()))


def _known(controller_id: int | None, nodes: Sequence[DescribeClusterBroker]) -> int:
    is_listed = any(node.broker_id == controller_id for node in nodes)
    return NO_CONTROLLER if controller_id is None or not is_listed else controller_id


def _refused(endpoint_type: int, version: int) -> DescribeClusterResponse:
    known = endpoint_type in (BROKERS, CONTROLLERS)
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if version < ENDPOINT_TYPE_VERSION:
        code = ErrorCode.INVALID_REQUEST
    text = "The request was sent to an endpoint of another type than" if known else "There is no endpoint type"
    return DescribeClusterResponse(error_code=code, error_message=f"{text} {endpoint_type}")


def _node(broker: BrokerInfo, listener: str) -> DescribeClusterBroker | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener:
            return DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
    return None
