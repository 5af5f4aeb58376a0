"""The partition of an internal topic for a key, as Apache Kafka computes it."""

from __future__ import annotations

from functools import lru_cache


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, int32 with wrap-around."""
    raw = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=10_000)
def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a key, such as a transactional id, belongs to."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
