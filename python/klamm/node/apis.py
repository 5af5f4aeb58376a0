"""Which APIs a node answers in Python, in which versions. The engine answers the fast path itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    1: (4, 18),  # of the metadata log alone: clients' fetches are the engine's
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),  # version 6 is unstable in Kafka 4.3
    29: (1, 3),
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    47: (0, 0),
    50: (0, 0),
    52: (0, 2),
    53: (0, 1),
    54: (0, 1),
    55: (0, 2),
    57: (0, 2),
    58: (0, 0),
    59: (0, 1),
    60: (0, 2),
    61: (0, 0),
    62: (0, 4),
    63: (0, 2),
    64: (0, 0),
    67: (0, 0),
    70: (0, 0),
    73: (0, 0),
    74: (0, 1),
    80: (0, 1),
    81: (0, 0),
    82: (0, 0),
}
"""Lowest and highest version of each API that Python answers (facts 12)."""

FORWARDABLE_APIS: Final = (19, 20, 33, 37, 43, 44, 55, 57, 64, 80, 81)
"""What brokers hand on to the active controller, wholly or in part (KIP-590)."""

RAFT_APIS: Final = (1, 52, 53, 54, 59)
"""What the replicas of the metadata log ask each other, on controller listeners."""

VOTER_APIS: Final = (80, 81, 82)
"""Changes of the quorum's voters, on controller listeners; by a broker's the first two are handed on."""


def ranges(keys: Iterable[int]) -> list[tuple[int, int, int]]:
    """Key, lowest and highest version of each, for the engine."""
    return [(key, *VERSIONS[key]) for key in sorted(keys)]
