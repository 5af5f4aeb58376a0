"""Client quotas: how a request changes them, and its records (KIP-546, `ClientQuotaControlManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.protocol.client_quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    ENTITY_TYPES,
    INTEGER_MAX,
    IP,
    IP_KEYS,
    USER,
    is_address,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import ClientQuotaRecord, EntityData
from klamm.protocol.messages.client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
    QuotaChange,
    QuotaEntityPart,
)

Entity = Mapping[str, str | None]
"""The name by type; None is the default entity of the type."""

_FRACTION_MAX: Final = 1e-6


def alter_client_quotas(
    state: Speculation, request: AlterClientQuotasRequest, resolved_hosts: frozenset[str]
) -> Result[AlterClientQuotasResponse]:
    """Set and remove quotas; an entity with an error changes nothing, and the others are changed.

    An entity of type ip is an address or one of the resolved hosts.
    """
    results: dict[frozenset[tuple[str, str | None]], AlterClientQuotasResult] = {}
    records: list[bytes] = []
    for entry in request.entries:
        entity = {part.entity_type: part.entity_name for part in entry.entity}
        place = frozenset(entity.items())
        code, message = ErrorCode.NONE, None
        try:
            if place in results:
                # As in Apache Kafka, the first entry for the entity is still written.
                raise _invalid(f"The request names the entity {entity} more than once.")
            records += _records(state, entity, entry, resolved_hosts)
        except KafkaError as error:
            code, message = error.code, error.message
        parts = tuple(QuotaEntityPart(*part) for part in entity.items())
        results[place] = AlterClientQuotasResult(code, message, parts)
    check_record_count(records)
    return Result(AlterClientQuotasResponse(tuple(results.values())), () if request.validate_only else records)


def _records(
    state: Speculation, entity: Entity, entry: AlterClientQuotasEntry, resolved_hosts: frozenset[str]
) -> list[bytes]:
    if len({change.key for change in entry.ops}) < len(entry.ops):
        raise _invalid(f"The request changes a quota of the entity {entity} more than once.")
    known = _keys_of(entity, resolved_hosts)
    current = state.image.quota(dict(entity))
    for change in entry.ops:
        if not change.remove:
            _check_value(change, known)
    return [state.encode(_record(entity, change)) for change in entry.ops if _differs(change, current)]


def _differs(change: QuotaChange, current: Mapping[str, float]) -> bool:
    return change.key in current if change.remove else current.get(change.key) != change.value


def _record(entity: Entity, change: QuotaChange) -> ClientQuotaRecord:
    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    value = 0.0 if change.remove else change.value
    return ClientQuotaRecord(entity=parts, key=change.key, value=value, remove=change.remove)


def _keys_of(entity: Entity, resolved_hosts: frozenset[str]) -> frozenset[str]:
    """The keys that an entity can have. Raises INVALID_REQUEST if there cannot be such an entity."""
    if not entity:
        raise _invalid("The entity has no type.")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unknown entity type {kind}.")
        if name == "":
            raise _invalid(f"The name of a {kind} cannot be empty.")
    if IP not in entity:
        return CLIENT_KEYS
    if USER in entity or CLIENT_ID in entity:
        raise _invalid("An entity of type ip cannot have a user or a client id as well.")
    host = entity[IP]
    if host is not None and not is_address(host) and host not in resolved_hosts:
        raise _invalid(f"{host} is neither an IP address nor a host that has one.")
    return IP_KEYS


def _check_value(change: QuotaChange, known: frozenset[str]) -> None:
    key, value = change.key, change.value
    if key not in known:
        raise _invalid(f"The entity has no quota {key}.")
    if not value > 0:  # not a number is not above 0 either
        raise _invalid(f"The quota {key} must be greater than 0.")
    if key not in INTEGER_MAX:
        return
    # The limit as a float, because a client that means the limit sends that.
    if value > float(INTEGER_MAX[key]):
        raise _invalid(f"The quota {key} is at most {INTEGER_MAX[key]}.")
    if value % 1 > _FRACTION_MAX:
        raise _invalid(f"The quota {key} must be an integer.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
