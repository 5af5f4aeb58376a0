"""Parsers of option values; the ValueError of each says which values are allowed. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_BYTES: Final = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


def boolean(value: str) -> bool:
    """A boolean."""
    if value.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return value.lower() == "true"


def strategy(value: str) -> bool:
    """Whether a partition without a record at or after the timestamp is an error."""
    if value.lower() not in ("error", "latest"):
        raise ValueError("it must be error or latest")
    return value.lower() == "error"


def not_negative(value: str) -> int:
    """An integer of 0 or more."""
    if not re.fullmatch(r"\+?[0-9]{1,19}", value) or int(value) >= 2**63:
        raise ValueError("it must be a whole number of at least 0")
    return int(value)


def positive(value: str) -> int | None:
    """An integer above 0."""
    try:
        number = not_negative(value)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError("it must be a whole number above 0")
    return number


def byte_count(value: str) -> int | None:
    """A number of bytes with a unit, as in Spark."""
    found = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", value.lower())
    if found is None or found[2] not in _BYTES or not int(found[1]):
        raise ValueError("it must be a number of bytes above 0, with or without a unit of k, m, g or t, such as 128m")
    return int(found[1]) << _BYTES[found[2]]


def duration_ms(value: str) -> int:
    """A duration in milliseconds, with a unit as in Spark."""
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError("it must be a number with a unit of us, ms, s, m, h or d, such as 15m")
    return int(int(found[1]) * _UNITS_MS[found[2]])
