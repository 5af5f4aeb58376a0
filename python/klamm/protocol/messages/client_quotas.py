"""Requests and answers about client quotas (KIP-546)."""

from __future__ import annotations

import enum
from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class QuotaEntityPart(Value):
    """The type and the name of one part of an entity; no name is the default entity of the type."""

    entity_type: str
    entity_name: str | None


class QuotaChange(Value):
    """A new value of a quota, or its removal."""

    key: str
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasEntry(Value):
    """An entity, and the changes of its quotas."""

    entity: tuple[QuotaEntityPart, ...]
    ops: tuple[QuotaChange, ...]


class AlterClientQuotasRequest(Value):
    """AlterClientQuotas (49)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_CLIENT_QUOTAS
    entries: tuple[AlterClientQuotasEntry, ...]
    validate_only: bool = False


class AlterClientQuotasResult(Value):
    """The result for one entity."""

    error_code: ErrorCode
    error_message: str | None
    entity: tuple[QuotaEntityPart, ...]


class AlterClientQuotasResponse(Value):
    """AlterClientQuotas (49)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_CLIENT_QUOTAS
    entries: tuple[AlterClientQuotasResult, ...]
    throttle_time_ms: int = 0


class MatchType(enum.IntEnum):
    """How a filter matches the name in an entity."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, also the default entity."""


class QuotaFilterComponent(Value):
    """The filter for one entity type; `match` is the name if `match_type` is EXACT."""

    entity_type: str
    match_type: int
    match: str | None = None


class DescribeClientQuotasRequest(Value):
    """DescribeClientQuotas (48). A strict filter matches only entities without further types."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CLIENT_QUOTAS
    components: tuple[QuotaFilterComponent, ...] = ()
    strict: bool = False


class QuotaValue(Value):
    """A quota and its value."""

    key: str
    value: float


class DescribedQuotas(Value):
    """The quotas of one entity."""

    entity: tuple[QuotaEntityPart, ...]
    values: tuple[QuotaValue, ...]


class DescribeClientQuotasResponse(Value):
    """DescribeClientQuotas (48); there are no entries if it failed."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_CLIENT_QUOTAS
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    entries: tuple[DescribedQuotas, ...] | None = None
    throttle_time_ms: int = 0
