"""DescribeConfigs (32) and ListConfigResources (74)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klamm._engine.metadata import Image
from klamm.broker import loggers
from klamm.broker.request import RequestContext
from klamm.config.entries import (
    ConfigQuery,
    Entries,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_node,
    describe_topic,
)
from klamm.config.values import NodeLayers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.topic_names import check_topic_name
from klamm.protocol.wire.codec import (
    build,
    decode_request,
    encode,
    read,
    write,
)
from klamm.protocol.wire.kio_classes import response_class

METRICS_ONLY_VERSION: Final = 0
"""The version in which the API listed client metrics and had no types in it."""


class ConfigHandlers:
    """Serves the APIs of this file from the committed image and the node's own settings."""

    def __init__(self, node_id: int, static: Mapping[str, str], image: Callable[[], Image]) -> None:
        self._node_id = node_id
        self._static = static
        self._image = image

    def _layers(self) -> NodeLayers:
        image = self._image()
        broker = ResourceType.BROKER
        return NodeLayers(self._static, image.configs(broker, ""), image.configs(broker, str(self._node_id)))

    async def describe_configs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Every key of each resource, or those that were asked for."""
        request = read(DescribeConfigsRequest, version, body)
        results = tuple(self._result(resource, request) for resource in request.resources)
        return write(DescribeConfigsResponse(results), version)

    def _result(self, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
        names = frozenset(resource.configuration_keys or ())
        wanted = ConfigQuery(names, request.include_synonyms, request.include_documentation)
        place = (resource.resource_type, resource.resource_name)
        try:
            return DescribeConfigsResult(*place, configs=self._entries(*place, wanted))
        except KafkaError as error:
            return DescribeConfigsResult(*place, error.code, error.message)

    def _entries(self, resource_type: int, name: str, wanted: ConfigQuery) -> Entries:
        image, layers = self._image(), self._layers()
        match resource_type:
            case ResourceType.TOPIC:
                check_topic_name(name)
                if image.topic_id(name) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
                return describe_topic(layers, image.configs(resource_type, name), wanted)
            case ResourceType.BROKER if not name:
                return describe_cluster_default(layers, wanted)
            case ResourceType.BROKER:
                self._check_own_id(name)
                return describe_node(layers, wanted)
            case ResourceType.BROKER_LOGGER:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                self._check_own_id(name)
                return describe_loggers(loggers.levels(), wanted)
            case ResourceType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                return describe_group(layers, image.configs(resource_type, name), wanted)
            case ResourceType.CLIENT_METRICS:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
                return describe_client_metrics(image.configs(resource_type, name), wanted)
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")

    def _check_own_id(self, name: str) -> None:
        try:
            node_id = int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        if node_id != self._node_id:
            text = f"Unexpected broker id, expected {self._node_id} or empty string, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    async def list_config_resources(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Resources of the wanted types (none named: of all types) that have, or can have, configs."""
        wanted = {int(ResourceType.CLIENT_METRICS)}
        if version > METRICS_ONLY_VERSION:
            request = decode_request(ApiKey.LIST_CONFIG_RESOURCES, version, body)
            wanted = set(request.resource_types) or {int(kind) for kind in self._listable()}
        answer = response_class(ApiKey.LIST_CONFIG_RESOURCES, version)
        if not wanted <= {int(kind) for kind in self._listable()}:
            return encode(build(answer, error_code=ErrorCode.UNSUPPORTED_VERSION))
        found = [
            {"resource_name": name, "resource_type": kind} for kind in sorted(wanted) for name in self._names(kind)
        ]
        return encode(build(answer, error_code=ErrorCode.NONE, config_resources=found))

    @staticmethod
    def _listable() -> tuple[ResourceType, ...]:
        return (
            ResourceType.TOPIC,
            ResourceType.BROKER,
            ResourceType.BROKER_LOGGER,
            ResourceType.CLIENT_METRICS,
            ResourceType.GROUP,
        )

    def _names(self, kind: int) -> list[str]:
        image = self._image()
        match kind:
            case ResourceType.TOPIC:
                return image.topic_names()
            case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
                return [str(broker) for broker in image.broker_ids()]
            case _:
                return image.config_resources(kind)
