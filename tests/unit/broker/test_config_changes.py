"""Config changes sent to a broker: what it rejects itself, and what it forwards to the controller."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from klamm._engine.metadata import Image
from klamm.broker.handlers.config_changes import ConfigChangeHandlers
from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.wire.codec import decode_response, from_entity, write_request

T = TypeVar("T")

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


class Asked:
    """A controller that rejects one topic, and records its requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.handlers = ConfigChangeHandlers(
            1, {"num.io.threads": "8"}, Image, self.ask, check_listeners=lambda values: None
        )

    def _responses(self, request: Any) -> tuple[AlterConfigsResourceResponse, ...]:
        self.requests.append(request)
        codes = {"unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return tuple(
            AlterConfigsResourceResponse(
                each.resource_type, each.resource_name, codes.get(each.resource_name, ErrorCode.NONE)
            )
            for each in reversed(request.resources)
        )

    async def ask(self, context: RequestContext, version: int, request: Any, answer: type[T]) -> T:
        is_incremental = isinstance(request, IncrementalAlterConfigsRequest)
        assert answer is (IncrementalAlterConfigsResponse if is_incremental else AlterConfigsResponse)
        made: Any = answer
        return cast(T, made(self._responses(request)))


def resource(resource_type: int, name: str, key: str, value: str) -> AlterConfigsResource:
    return AlterConfigsResource(resource_type, name, (AlterableConfig(key, value),))


RESOURCES = (
    resource(BROKER, "1", "num.io.threads", "100"),
    resource(TOPIC, "unknown", "retention.ms", "1"),
    resource(BROKER, "2", "num.io.threads", "9"),
    resource(TOPIC, "foo", "retention.ms", "1"),
    resource(BROKER, "", "num.io.threads", "9"),
)
CODES = [
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NONE,
    ErrorCode.NONE,
]


async def test_results_are_in_the_order_of_the_request() -> None:
    asked = Asked()
    request = IncrementalAlterConfigsRequest(RESOURCES, validate_only=True)
    body = await asked.handlers.incremental_alter_configs(None, 1, write_request(request, 1))  # type: ignore[arg-type]
    answer = from_entity(IncrementalAlterConfigsResponse, decode_response(44, 1, body))
    assert [each.error_code for each in answer.responses] == CODES
    assert [each.resource_name for each in answer.responses] == [each.resource_name for each in RESOURCES]
    (forwarded,) = asked.requests
    assert (forwarded.resources, forwarded.validate_only) == ((RESOURCES[1], *RESOURCES[3:]), True)


async def test_the_legacy_api_goes_the_same_way() -> None:
    asked = Asked()
    body = await asked.handlers.alter_configs(None, 2, write_request(AlterConfigsRequest(RESOURCES), 2))  # type: ignore[arg-type]
    answer = from_entity(AlterConfigsResponse, decode_response(33, 2, body))
    assert [each.error_code for each in answer.responses] == CODES


async def test_an_empty_request_is_not_forwarded() -> None:
    asked = Asked()
    request = IncrementalAlterConfigsRequest(RESOURCES[:1])
    await asked.handlers.incremental_alter_configs(None, 1, write_request(request, 1))  # type: ignore[arg-type]
    assert asked.requests == []
