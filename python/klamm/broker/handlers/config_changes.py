"""AlterConfigs (33) and IncrementalAlterConfigs (44): checked on this node first, then the controller's to decide.

A broker's configs are changed through the broker itself: it alone knows its file, and what it can change while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from klamm._engine import Image
from klamm.broker.request import RequestContext
from klamm.protocol.broker_config_checks import preprocess
from klamm.protocol.codec import read, write
from klamm.protocol.config_sources import NodeLayers
from klamm.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm.protocol.resource_types import ResourceType

Responses = tuple[AlterConfigsResourceResponse, ...]


class ConfigChangeHandlers:
    """Serves the APIs of this file; the last two arguments ask the active controller."""

    def __init__(
        self,
        node_id: int,
        static: Mapping[str, str],
        image: Callable[[], Image],
        alter: Callable[[AlterConfigsRequest], Awaitable[AlterConfigsResponse]],
        alter_incrementally: Callable[[IncrementalAlterConfigsRequest], Awaitable[IncrementalAlterConfigsResponse]],
    ) -> None:
        self._node_id = node_id
        self._static = static
        self._image = image
        self._ask_alter = alter
        self._ask_incrementally = alter_incrementally

    async def alter_configs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Replace all configs of each resource."""
        request = read(AlterConfigsRequest, version, body)
        responses = await self._decide(request, self._ask_alter, is_incremental=False)
        return write(AlterConfigsResponse(responses), version)

    async def incremental_alter_configs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Change single keys of each resource."""
        request = read(IncrementalAlterConfigsRequest, version, body)
        responses = await self._decide(request, self._ask_incrementally, is_incremental=True)
        return write(IncrementalAlterConfigsResponse(responses), version)

    async def _decide(self, request: Any, ask: Callable[[Any], Awaitable[Any]], *, is_incremental: bool) -> Responses:
        """One answer for each resource, in the request's order: ours where refused here, else the controller's."""
        first = preprocess(request.resources, self._node_id, self._layers(), is_incremental=is_incremental)
        answered: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
        if first.forward:
            answer = await ask(replace(request, resources=first.forward))
            answered = {(each.resource_type, each.resource_name): each for each in answer.responses}
        resources: tuple[AlterConfigsResource, ...] = request.resources
        places = [(each.resource_type, each.resource_name) for each in resources]
        return tuple(
            AlterConfigsResourceResponse(*place, first.errors[at].code, first.errors[at].message)
            if at in first.errors
            else answered[place]
            for at, place in enumerate(places)
        )

    def _layers(self) -> NodeLayers:
        image = self._image()
        own = image.configs(ResourceType.BROKER, str(self._node_id))
        return NodeLayers(self._static, image.configs(ResourceType.BROKER, ""), own)
