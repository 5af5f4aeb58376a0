"""AlterConfigs (33) and IncrementalAlterConfigs (44): checked on this node first, then the controller's to decide.

A broker's configs are changed through the broker itself: it alone knows its file, and what it can change while it runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from klamm._engine.metadata import Image
from klamm.broker import loggers
from klamm.broker.request import RequestContext
from klamm.config.broker_checks import AlterLoggers, CheckListeners, Preprocessed, preprocess
from klamm.config.values import NodeLayers
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.wire.codec import read, write

T = TypeVar("T")
Responses = tuple[AlterConfigsResourceResponse, ...]


class AskController(Protocol):
    """Sends requests to the active controller."""

    async def __call__(self, context: RequestContext, version: int, request: Any, answer: type[T]) -> T:
        """The answer, as a value `answer`, to `request` of the client of `context`, in that version."""
        ...


class ConfigChangeHandlers:
    """Serves the APIs of this file; `ask` asks the active controller."""

    def __init__(
        self,
        node_id: int,
        static: Mapping[str, str],
        image: Callable[[], Image],
        ask: AskController,
        *,
        check_listeners: CheckListeners,
    ) -> None:
        self._check_listeners = check_listeners
        self._node_id = node_id
        self._static = static
        self._image = image
        self._ask = ask

    async def alter_configs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Replace all configs of each resource."""
        request = read(AlterConfigsRequest, version, body)
        responses = await self._decide(context, version, request, AlterConfigsResponse)
        return write(AlterConfigsResponse(responses), version)

    async def incremental_alter_configs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Change single keys of each resource."""
        request = read(IncrementalAlterConfigsRequest, version, body)
        responses = await self._decide(context, version, request, IncrementalAlterConfigsResponse)
        return write(IncrementalAlterConfigsResponse(responses), version)

    async def _decide(
        self,
        context: RequestContext,
        version: int,
        request: Any,
        response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
    ) -> Responses:
        """One answer for each resource, in the request's order: ours where refused here, else the controller's."""
        is_incremental = response is IncrementalAlterConfigsResponse
        alter_loggers = self._alter_loggers(request) if is_incremental else None
        first = preprocess(
            request.resources,
            self._node_id,
            self._layers(),
            is_incremental=is_incremental,
            alter_loggers=alter_loggers,
            check_listeners=self._check_listeners,
        )
        answered: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
        if first.forward:
            answer = await self._ask(context, version, replace(request, resources=first.forward), response)
            answered = {(each.resource_type, each.resource_name): each for each in answer.responses}
        resources: tuple[AlterConfigsResource, ...] = request.resources
        places = [(each.resource_type, each.resource_name) for each in resources]
        return tuple(self._answer(at, place, first) or answered[place] for at, place in enumerate(places))

    @staticmethod
    def _answer(at: int, place: tuple[int, str], first: Preprocessed) -> AlterConfigsResourceResponse | None:
        if at in first.errors:
            return AlterConfigsResourceResponse(*place, first.errors[at].code, first.errors[at].message)
        return AlterConfigsResourceResponse(*place) if at in first.settled else None

    async def incremental_alter_configs_at_controller(
        self, context: RequestContext, version: int, body: bytes
    ) -> bytes:
        """The same on a controller listener: loggers are this node's, the rest is the controller's to decide."""
        request = read(IncrementalAlterConfigsRequest, version, body)
        is_logger = [each.resource_type == ResourceType.BROKER_LOGGER for each in request.resources]
        alter_loggers = self._alter_loggers(request)
        responses = []
        for resource in itertools.compress(request.resources, is_logger):
            place = (resource.resource_type, resource.resource_name)
            try:
                alter_loggers(resource)
                responses.append(AlterConfigsResourceResponse(*place))
            except KafkaError as error:
                responses.append(AlterConfigsResourceResponse(*place, error.code, error.message))
        rest = tuple(each for each, ours in zip(request.resources, is_logger, strict=True) if not ours)
        left = replace(request, resources=rest)
        decided = await self._ask(context, version, left, IncrementalAlterConfigsResponse)
        return write(IncrementalAlterConfigsResponse((*decided.responses, *responses)), version)

    def _alter_loggers(self, request: IncrementalAlterConfigsRequest) -> AlterLoggers:
        return lambda resource: loggers.alter(resource, self._node_id, validate_only=request.validate_only)

    def _layers(self) -> NodeLayers:
        image = self._image()
        own = image.configs(ResourceType.BROKER, str(self._node_id))
        return NodeLayers(self._static, image.configs(ResourceType.BROKER, ""), own)
