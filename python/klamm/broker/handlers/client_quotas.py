"""DescribeClientQuotas (48)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm._engine.metadata import Image
from klamm.broker.request import RequestContext
from klamm.protocol.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    MatchType,
    QuotaEntityPart,
    QuotaFilterComponent,
    QuotaValue,
)
from klamm.protocol.wire.codec import read, write


class QuotaHandlers:
    """Serves the client quotas of the committed image (Kafka's ClientQuotasImage.describe)."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    async def describe_client_quotas(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The entities that match a filter, and their quotas."""
        request = read(DescribeClientQuotasRequest, version, body)
        try:
            _check_filter(request.components)
            answer = DescribeClientQuotasResponse(entries=_found(self._image(), request))
        except KafkaError as error:
            answer = DescribeClientQuotasResponse(error.code, error.message)
        return write(answer, version)


def _found(image: Image, request: DescribeClientQuotasRequest) -> tuple[DescribedQuotas, ...]:
    return tuple(
        DescribedQuotas(
            tuple(QuotaEntityPart(*part) for part in entity.items()),
            tuple(QuotaValue(*quota) for quota in quotas.items()),
        )
        for entity, quotas in image.quotas()
        if _matches(entity, request)
    )


def _matches(entity: Mapping[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        each.entity_type in entity
        and (each.match_type == MatchType.SPECIFIED or entity[each.entity_type] == each.match)
        for each in request.components
    )


def _check_filter(components: tuple[QuotaFilterComponent, ...]) -> None:
    """Raises INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown entity type."""
    kinds: set[str] = set()
    for each in components:
        if not each.entity_type:
            raise _invalid("A component of the filter has no entity type.")
        if each.entity_type in kinds:
            raise _invalid(f"The filter has the entity type {each.entity_type} more than once.")
        if each.entity_type not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown entity type {each.entity_type}.")
        _check_match(each)
        kinds.add(each.entity_type)
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise _invalid("A filter by ip cannot have a user or a client id as well.")


def _check_match(component: QuotaFilterComponent) -> None:
    try:
        kind = MatchType(component.match_type)
    except ValueError:
        raise _invalid(f"Unknown match type {component.match_type}.") from None
    if kind is MatchType.EXACT and component.match is None:
        raise _invalid("An exact match needs a name.")
    if kind is not MatchType.EXACT and component.match is not None:
        raise _invalid(f"A match of type {kind.name} has no name.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
