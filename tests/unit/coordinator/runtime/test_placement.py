from __future__ import annotations

import pytest

from klamm.coordinator.runtime.placement import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("😀", 1772899),
    ],
)
def test_javas_hash(text: str, expected: int) -> None:
    """Java's `String.hashCode` of UTF-16 units; the expected values are from Java."""
    assert java_hash(text) == expected


def test_the_smallest_hash_goes_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
