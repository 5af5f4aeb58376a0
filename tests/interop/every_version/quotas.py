"""Client quotas."""

from __future__ import annotations

from typing import Any

from klamm.protocol.api_key import ApiKey
from tests.interop.peers import Both, versions
from tests.support.waiting import wait_until

Entity = dict[str, str | None]
Match = tuple[str, int, str | None]

ENTITIES: list[Entity] = [
    {"user": "alice"},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
    {"user": "alice", "client-id": "c"},
    {"user": None, "client-id": None},
    {"ip": "10.1.2.3"},
    {"ip": None},
    {"ip": "localhost"},
    {},
    {"group": "g"},
    {"user": ""},
    {"ip": "300.1.2.3"},
    {"ip": "10.1.2.3", "user": "alice"},
]
VALUES: list[dict[str, float | None]] = [
    {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0},
    {"producer_byte_rate": 1024.0, "request_percentage": 12.5, "controller_mutation_rate": 0.5},
    {"connection_creation_rate": 10.0},
    {"connection_creation_rate": 2147483648.0},
    {"connection_creation_rate": 1.5},
    {"producer_byte_rate": 1.5},
    {"producer_byte_rate": float(2**63)},
    {"producer_byte_rate": 1e19},
    {"producer_byte_rate": 1e-7},
    {"consumer_byte_rate": 0.0},
    {"request_percentage": -1.0},
    {"nope": 1.0},
    {"nope": None},
    {"consumer_byte_rate": None},
    {},
]
FILTERS: list[list[Match]] = [
    [],
    [("user", 0, "alice")],
    [("user", 1, None)],
    [("user", 2, None)],
    [("client-id", 0, "c"), ("user", 2, None)],
    [("client-id", 1, None), ("user", 1, None)],
    [("ip", 2, None)],
    [("ip", 0, "10.1.2.3"), ("user", 2, None)],
    [("user", 0, "alice"), ("user", 2, None)],
    [("user", 0, None)],
    [("user", 1, "alice")],
    [("user", 2, "alice")],
    [("user", 3, None)],
    [("group", 2, None)],
    [("", 2, None)],
]


def _entry(entity: Entity, quotas: dict[str, float | None]) -> dict[str, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": parts, "ops": ops}


def _described(both: Both, label: str) -> None:
    for strict in (False, True):
        for matches in FILTERS:
            components = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in matches]
            both.every(
                ApiKey.DESCRIBE_CLIENT_QUOTAS, f"{label}: {matches}, {strict=}", components=components, strict=strict
            )


def alterations(both: Both, label: str) -> None:
    """AlterClientQuotas."""
    for version in versions(ApiKey.ALTER_CLIENT_QUOTAS):
        for validate in (True, False):
            for quotas in VALUES:
                what = f"{label}, {quotas}, {validate=}"
                entries = [_entry(entity, quotas) for entity in ENTITIES]
                both.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, what, entries=entries, validate_only=validate)
        twice = [_entry({"user": "eve"}, {"producer_byte_rate": value}) for value in (5.0, 6.0)]
        both.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, f"{label}, an entity twice", entries=twice)
        key_twice = _entry({"user": "mal"}, {"producer_byte_rate": 5.0})
        key_twice["ops"] *= 2
        both.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, f"{label}, a key twice", entries=[key_twice])


def quotas(both: Both) -> None:
    """DescribeClientQuotas and AlterClientQuotas."""
    _described(both, "none")
    alterations(both, "at a broker")
    last = {"user": "last"}
    both.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, "the last", entries=[_entry(dict(last), {"producer_byte_rate": 1.0})])
    components = [{"entity_type": "user", "match_type": 0, "match": "last"}]
    for peer in (both.kafka, both.klamm):
        wait_until(lambda: peer.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": components})["entries"])  # noqa: B023
    _described(both, "some")
