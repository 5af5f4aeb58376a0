"""Changes of client quotas (KIP-546)."""

from __future__ import annotations

import math

import pytest
from tests.unit.controller.cluster import Cluster

from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import ClientQuotaRecord
from klamm.protocol.messages.client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaChange,
    QuotaEntityPart,
)

Entity = dict[str, str | None]


def entry(entity: Entity, **quotas: float | None) -> AlterClientQuotasEntry:
    """Sets the quotas; None removes one."""
    parts = tuple(QuotaEntityPart(*part) for part in entity.items())
    ops = (QuotaChange(key, value or 0.0, value is None) for key, value in quotas.items())
    return AlterClientQuotasEntry(parts, tuple(ops))


def alter(cluster: Cluster, *entries: AlterClientQuotasEntry, validate_only: bool = False) -> list[ErrorCode]:
    answer: AlterClientQuotasResponse = cluster.ask(AlterClientQuotasRequest(entries, validate_only))
    return [result.error_code for result in answer.entries]


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({"user": "alice"}, {"producer_byte_rate": 1024.0, "consumer_byte_rate": float((1 << 63) - 1)}),
        ({"user": None}, {"request_percentage": 0.5}),
        ({"client-id": "c"}, {"controller_mutation_rate": 2.5}),
        ({"user": "alice", "client-id": None}, {"producer_byte_rate": 1.0}),
        ({"ip": "192.168.1.1"}, {"connection_creation_rate": 3.0}),
        ({"ip": "2001:db8::1"}, {"connection_creation_rate": float((1 << 31) - 1)}),
        ({"ip": None}, {"connection_creation_rate": 3.0}),
    ],
)
def test_quotas_are_set_and_removed(entity: Entity, quotas: dict[str, float]) -> None:
    cluster = Cluster()
    assert alter(cluster, entry(entity, **quotas)) == [ErrorCode.NONE]
    assert cluster.image.quota(entity) == quotas
    assert alter(cluster, entry(entity, **dict.fromkeys(quotas))) == [ErrorCode.NONE]
    assert cluster.image.quotas() == []


def test_only_differences_are_written() -> None:
    cluster = Cluster()
    alter(cluster, entry({"user": "a"}, producer_byte_rate=1.0, consumer_byte_rate=2.0))
    start = len(cluster.log)
    changed = entry({"user": "a"}, producer_byte_rate=1.0, consumer_byte_rate=3.0, request_percentage=None)
    assert alter(cluster, changed) == [ErrorCode.NONE]
    assert [
        (record.key, record.value) for record in cluster.records(start) if isinstance(record, ClientQuotaRecord)
    ] == [("consumer_byte_rate", 3.0)]
    assert len(cluster.log) == start + 1


def test_validation_writes_nothing() -> None:
    cluster = Cluster()
    start = len(cluster.log)
    entries = entry({"user": "a"}, producer_byte_rate=1.0), entry({"user": "b"}, producer_byte_rate=-1.0)
    assert alter(cluster, *entries, validate_only=True) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(cluster.log) == start


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"client-id": ""}, {"producer_byte_rate": 1.0}),
        ({"ip": ""}, {"connection_creation_rate": 1.0}),
        ({"ip": "300.1.1.1"}, {"connection_creation_rate": 1.0}),
        ({"ip": "unresolved"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1", "client-id": None}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"nope": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"request_percentage": math.nan}),
        ({"user": "a"}, {"consumer_byte_rate": 1.5}),
        ({"user": "a"}, {"consumer_byte_rate": 1e19}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": float(1 << 31)}),
    ],
)
def test_an_invalid_quota_is_rejected_for_its_entity_only(entity: Entity, quotas: dict[str, float]) -> None:
    cluster = Cluster()
    other = {"client-id": "other"}
    codes = alter(cluster, entry(entity, **quotas), entry(dict(other), producer_byte_rate=7.0))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert cluster.image.quotas() == [(other, {"producer_byte_rate": 7.0})]


def test_zero_is_no_rate() -> None:
    zero = AlterClientQuotasEntry((QuotaEntityPart("user", "a"),), (QuotaChange("producer_byte_rate", 0.0),))
    assert alter(Cluster(), zero) == [ErrorCode.INVALID_REQUEST]


def test_an_entity_that_is_named_twice_fails_and_keeps_its_first_change() -> None:
    cluster = Cluster()
    twice = entry({"user": "a", "client-id": "c"}, producer_byte_rate=1.0)
    again = entry({"client-id": "c", "user": "a"}, producer_byte_rate=2.0)
    assert alter(cluster, twice, again) == [ErrorCode.INVALID_REQUEST]
    assert cluster.image.quota({"user": "a", "client-id": "c"}) == {"producer_byte_rate": 1.0}


def test_a_key_that_is_named_twice_fails() -> None:
    cluster = Cluster()
    change = QuotaChange("producer_byte_rate", 1.0)
    assert alter(cluster, AlterClientQuotasEntry((QuotaEntityPart("user", "a"),), (change, change))) == [
        ErrorCode.INVALID_REQUEST
    ]
    assert cluster.image.quotas() == []


def test_an_inactive_controller_rejects_changes() -> None:
    cluster = Cluster()
    cluster.controller.on_not_leader(cluster.now_ms)
    assert alter(cluster, entry({"user": "a"}, producer_byte_rate=1.0)) == [ErrorCode.NOT_CONTROLLER]
