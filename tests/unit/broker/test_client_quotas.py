"""DescribeClientQuotas: which entities a filter finds (KIP-546)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from klamm._engine.metadata import Image
from klamm.broker.handlers.client_quotas import QuotaHandlers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import ClientQuotaRecord, EntityData, encode
from klamm.protocol.messages.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    MatchType,
    QuotaFilterComponent,
)
from klamm.protocol.wire.codec import read_response, write_request

EXACT, DEFAULT, SPECIFIED = MatchType
ENTITIES: dict[str, dict[str, str | None]] = {
    "alice": {"user": "alice"},
    "users": {"user": None},
    "c": {"client-id": "c"},
    "alice-c": {"user": "alice", "client-id": "c"},
    "alice-clients": {"user": "alice", "client-id": None},
    "address": {"ip": "10.0.0.1"},
}


def image() -> Image:
    def record(entity: dict[str, str | None], key: str) -> bytes:
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
        return encode(ClientQuotaRecord(entity=parts, key=key, value=5.0, remove=False), 0)

    return Image().apply([record(entity, f"key of {name}") for name, entity in ENTITIES.items()])


def ask(*components: tuple[str, int, str | None], strict: bool) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(tuple(QuotaFilterComponent(*each) for each in components), strict)
    handler = QuotaHandlers(image).describe_client_quotas
    body = asyncio.run(handler(cast(Any, None), 1, write_request(request, 1)))
    return read_response(DescribeClientQuotasResponse, 1, body)


def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
    answer = ask(*components, strict=strict)
    assert answer.error_code is ErrorCode.NONE
    names = set()
    for entry in answer.entries or ():
        ((key, value),) = ((each.key, each.value) for each in entry.values)
        name = key.removeprefix("key of ")
        assert value == 5.0
        assert {part.entity_type: part.entity_name for part in entry.entity} == ENTITIES[name]
        names.add(name)
    return names


def test_a_filter_finds_what_it_names() -> None:
    assert found() == set(ENTITIES)
    assert found(strict=True) == set()
    assert found(("user", EXACT, "alice")) == {"alice", "alice-c", "alice-clients"}
    assert found(("user", EXACT, "alice"), strict=True) == {"alice"}
    assert found(("user", EXACT, "bob")) == set()
    assert found(("user", DEFAULT, None)) == {"users"}
    assert found(("user", SPECIFIED, None), strict=True) == {"alice", "users"}
    assert found(("client-id", SPECIFIED, None)) == {"c", "alice-c", "alice-clients"}
    assert found(("user", EXACT, "alice"), ("client-id", DEFAULT, None)) == {"alice-clients"}
    assert found(("ip", SPECIFIED, None)) == {"address"}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", EXACT, "10.0.0.1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    answer = ask(*components, strict=False)
    assert answer.error_code is code
    assert answer.error_message
    assert answer.entries is None
