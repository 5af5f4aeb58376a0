"""The error that a client receives when an append failed (Kafka's `CoordinatorOperationExceptionHelper`)."""

from __future__ import annotations

from typing import Final

from klamm.protocol.errors import ErrorCode

FAILED_APPENDS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # The log refused the producer of another request's batch. The request can be repeated.
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """The error for the client when an append fails with `error`."""
    return FAILED_APPENDS.get(error, error)
