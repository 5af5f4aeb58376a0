"""Operations that brokers and controllers request from the active controller."""

from __future__ import annotations

from typing import Final

from klamm.controller.operations.operation import Operation, Wire
from klamm.protocol.api_key import ApiKey
from klamm.protocol.messages import directory_assignments as directories
from klamm.protocol.messages import registration as messages

BROKER_REGISTRATION: Final = Operation(
    ApiKey.BROKER_REGISTRATION,
    messages.BrokerRegistrationRequest,
    messages.BrokerRegistrationResponse,
    lambda decisions, asked: decisions.register_broker(asked.running_ms(), asked.request, asked.api_version),
    lambda request, code, message: messages.BrokerRegistrationResponse(code),
    broker_id=lambda request: request.broker_id,
)
BROKER_HEARTBEAT: Final = Operation(
    ApiKey.BROKER_HEARTBEAT,
    messages.BrokerHeartbeatRequest,
    messages.BrokerHeartbeatResponse,
    lambda decisions, asked: decisions.heartbeat(asked.running_ms(), asked.request),
    lambda request, code, message: messages.BrokerHeartbeatResponse(code),
    broker_id=lambda request: request.broker_id,
)
UNREGISTER_BROKER: Final = Operation(
    ApiKey.UNREGISTER_BROKER,
    messages.UnregisterBrokerRequest,
    messages.UnregisterBrokerResponse,
    lambda decisions, asked: decisions.unregister_broker(asked.request),
    lambda request, code, message: messages.UnregisterBrokerResponse(code, message),
    broker_id=lambda request: request.broker_id,
)
ALLOCATE_PRODUCER_IDS: Final = Operation(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    messages.AllocateProducerIdsRequest,
    messages.AllocateProducerIdsResponse,
    lambda decisions, asked: decisions.allocate_producer_ids(asked.request),
    lambda request, code, message: messages.AllocateProducerIdsResponse(code),
)
CONTROLLER_REGISTRATION: Final = Operation(
    ApiKey.CONTROLLER_REGISTRATION,
    messages.ControllerRegistrationRequest,
    messages.ControllerRegistrationResponse,
    lambda decisions, asked: decisions.register_controller(asked.request),
    lambda request, code, message: messages.ControllerRegistrationResponse(code, message),
)
ASSIGN_REPLICAS_TO_DIRS: Final = Operation(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    messages.AssignReplicasToDirsRequest,
    messages.AssignReplicasToDirsResponse,
    lambda decisions, asked: decisions.assign_replicas_to_dirs(asked.request),
    lambda request, code, message: messages.AssignReplicasToDirsResponse(code),
    wire=Wire(
        directories.DirectoriesRequest,
        directories.DirectoriesResponse,
        directories.from_wire,
        directories.to_wire,
        directories.answer_from_wire,
        directories.answer_to_wire,
    ),
)
