"""Registrations of controllers: their endpoints and supported features (KIP-919)."""

from __future__ import annotations

import logging

from klamm.controller.nodes.registration import check_listeners
from klamm.controller.result import Result
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import CONTROLLER_REGISTRATION_LEVEL
from klamm.protocol.generated.metadata_records import ControllerEndpoint, ControllerFeature, RegisterControllerRecord
from klamm.protocol.messages.registration import ControllerRegistrationRequest, ControllerRegistrationResponse

log = logging.getLogger("klamm.controller")


def register_controller(
    state: Speculation, request: ControllerRegistrationRequest
) -> Result[ControllerRegistrationResponse]:
    """Register a controller; replaces an earlier one with its id. Raises UNSUPPORTED_VERSION, INVALID_REGISTRATION."""
    if state.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        text = f"Controllers register from metadata.version {CONTROLLER_REGISTRATION_LEVEL} on."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    check_listeners(request.listeners)
    log.info("Controller %d registers", request.controller_id)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ],
        features=[
            ControllerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
    )
    return Result(ControllerRegistrationResponse(), [state.encode(record)])
