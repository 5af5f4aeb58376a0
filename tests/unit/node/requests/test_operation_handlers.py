"""A controller operation runs with the time that is left after waiting for its turn."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.request_contexts import REQUEST_TIMEOUT_MS, request_context

from klamm.broker.request import monotonic_ms
from klamm.controller.operations.operation import Operation
from klamm.controller.operations.topics import CREATE_TOPICS as OPERATION
from klamm.controller.requester import Requester
from klamm.node.requests.operation_handlers import operation_handler
from klamm.protocol.api_key import ApiKey
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from klamm.protocol.wire.codec import build, encode, write
from klamm.protocol.wire.kio_classes import request_class

VERSION = 7
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("timeout_ms", "waited_ms", "left_ms"),
    [
        (HOUR_MS, 0, HOUR_MS),
        (HOUR_MS, HOUR_MS // 2, HOUR_MS),
        (HOUR_MS, HOUR_MS, 0),
        (1, 2 * HOUR_MS, 0),
        (0, 0, 0),
        (-1, 0, -1),
    ],
)
async def test_an_expired_timeout_is_zero(timeout_ms: int, waited_ms: int, left_ms: int) -> None:
    asked: list[CreateTopicsRequest] = []

    async def run(
        operation: Operation[Any, Any], request: CreateTopicsRequest, api_version: int, requester: Requester
    ) -> Any:
        assert (operation, api_version) == (OPERATION, VERSION)
        asked.append(request)
        return CreateTopicsResponse(())

    arrived_ms = monotonic_ms() - waited_ms
    context = request_context(
        ApiKey.CREATE_TOPICS, VERSION, arrived_ms=arrived_ms, deadline_ms=arrived_ms + REQUEST_TIMEOUT_MS
    )
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    body = encode(build(request_class(ApiKey.CREATE_TOPICS, VERSION), topics=[topic], timeout_ms=timeout_ms))
    answer = await operation_handler(OPERATION, run)(context, VERSION, body)
    assert answer == write(CreateTopicsResponse(()), VERSION)
    assert asked == [CreateTopicsRequest((CreatableTopic("t", 1, 1),), left_ms)]
