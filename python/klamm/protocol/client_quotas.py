"""The types of quota entities, and the keys that each can have (KIP-124, KIP-257, KIP-599, KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})

_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1

INTEGER_MAX: Final[Mapping[str, int]] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "connection_creation_rate": _INT_MAX,
}
"""The highest values of the keys whose values are integers."""
CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_KEYS: Final = frozenset({"connection_creation_rate"})


def is_address(name: str) -> bool:
    """Whether the name of an entity of type ip is an address, and not that of a host."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
