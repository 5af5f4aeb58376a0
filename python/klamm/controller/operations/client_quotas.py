"""The operation on client quotas."""

from __future__ import annotations

from typing import Final

from klamm.controller.operations.operation import Operation
from klamm.protocol.api_key import ApiKey
from klamm.protocol.client_quotas import IP, is_address
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)


def _refused(request: AlterClientQuotasRequest, code: ErrorCode, message: str | None) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        tuple(AlterClientQuotasResult(code, message, entry.entity) for entry in request.entries)
    )


def _hosts(request: AlterClientQuotasRequest) -> frozenset[str]:
    names = (part.entity_name for entry in request.entries for part in entry.entity if part.entity_type == IP)
    return frozenset(name for name in names if name and not is_address(name))


ALTER_CLIENT_QUOTAS: Final = Operation(
    ApiKey.ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    lambda decisions, asked: decisions.alter_client_quotas(asked.request, asked.resolved_hosts),
    _refused,
    hosts=_hosts,
)
