"""What a request is answered when it fails as a whole: each API has its own way of saying so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.protocol import configs, registration, topics
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.feature_updates import UpdateFeaturesRequest, UpdateFeaturesResponse


def refuse(request: Any, error: KafkaError) -> Any:
    """The answer to `request` that carries `error`."""
    return _REFUSALS[type(request)](request, error.code, error.message)


def _create_topics(
    request: topics.CreateTopicsRequest, code: ErrorCode, message: str | None
) -> topics.CreateTopicsResponse:
    results = {
        topic.name: topics.CreatableTopicResult(topic.name, error_code=code, error_message=message)
        for topic in request.topics
    }
    return topics.CreateTopicsResponse(tuple(results.values()))


def _delete_topics(
    request: topics.DeleteTopicsRequest, code: ErrorCode, message: str | None
) -> topics.DeleteTopicsResponse:
    by_state = [topics.DeletableTopicResult(each.name, each.topic_id, code, message) for each in request.topics]
    by_name = [topics.DeletableTopicResult(name, topics.ZERO_ID, code, message) for name in request.topic_names]
    return topics.DeleteTopicsResponse((*by_state, *by_name))


def _create_partitions(
    request: topics.CreatePartitionsRequest, code: ErrorCode, message: str | None
) -> topics.CreatePartitionsResponse:
    results = {each.name: topics.CreatePartitionsTopicResult(each.name, code, message) for each in request.topics}
    return topics.CreatePartitionsResponse(tuple(results.values()))


def _elect_leaders(
    request: topics.ElectLeadersRequest, code: ErrorCode, message: str | None
) -> topics.ElectLeadersResponse:
    # v0 has no code for the whole, so each partition carries it.
    results = tuple(
        topics.ReplicaElectionResult(
            each.topic, tuple(topics.PartitionResult(partition, code, message) for partition in each.partitions)
        )
        for each in request.topic_partitions or ()
    )
    return topics.ElectLeadersResponse(results, code)


def _resources(
    request: configs.AlterConfigsRequest | configs.IncrementalAlterConfigsRequest,
    code: ErrorCode,
    message: str | None,
) -> tuple[configs.AlterConfigsResourceResponse, ...]:
    places = dict.fromkeys((each.resource_type, each.resource_name) for each in request.resources)
    return tuple(configs.AlterConfigsResourceResponse(*place, code, message) for place in places)


_REFUSALS: Final[dict[type, Callable[[Any, ErrorCode, str | None], Any]]] = {
    topics.CreateTopicsRequest: _create_topics,
    topics.DeleteTopicsRequest: _delete_topics,
    topics.CreatePartitionsRequest: _create_partitions,
    topics.ElectLeadersRequest: _elect_leaders,
    configs.AlterConfigsRequest: lambda *refused: configs.AlterConfigsResponse(_resources(*refused)),
    configs.IncrementalAlterConfigsRequest: lambda *refused: configs.IncrementalAlterConfigsResponse(
        _resources(*refused)
    ),
    UpdateFeaturesRequest: lambda _, code, message: UpdateFeaturesResponse(code, message),
    registration.BrokerRegistrationRequest: lambda _, code, __: registration.BrokerRegistrationResponse(code),
    registration.BrokerHeartbeatRequest: lambda _, code, __: registration.BrokerHeartbeatResponse(code),
    registration.ControllerRegistrationRequest: lambda _, code, message: registration.ControllerRegistrationResponse(
        code, message
    ),
    registration.AssignReplicasToDirsRequest: lambda _, code, __: registration.AssignReplicasToDirsResponse(code),
    registration.UnregisterBrokerRequest: lambda _, code, message: registration.UnregisterBrokerResponse(code, message),
    registration.AllocateProducerIdsRequest: lambda _, code, __: registration.AllocateProducerIdsResponse(code),
}
