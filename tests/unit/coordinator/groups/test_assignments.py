"""The engine's assignors, metadata hash and topic patterns through their Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

import pytest
from tests.unit.coordinator.groups.images import image_of

from klamm._engine.groups import TopicPattern, assign, group_hash, topic_hash
from klamm._engine.metadata import Image
from klamm.broker.handlers.offsets import TopicInfo

A, B = UUID(int=1).bytes, UUID(int=2).bytes


def image_with(**counts: int) -> Image:
    """An image with these topics and partition counts."""
    infos = (TopicInfo(name.replace("__", "."), UUID(int=len(name)).bytes, count) for name, count in counts.items())
    return image_of(*infos)


Member = tuple[str, str | None, Sequence[bytes], Mapping[bytes, Sequence[int]]]


def test_uniform_keeps_what_members_own() -> None:
    members: list[Member] = [("m1", None, [A, B], {A: [0, 1, 2], B: (0,)}), ("m2", None, [A, B], MappingProxyType({}))]
    found = assign("uniform", members, {A: 3, B: 1}, homogeneous=True)
    assert found == [{A: (0, 1)}, {A: (2,), B: (0,)}]


def test_range_starts_with_static_members_and_returns_targets_in_order() -> None:
    members: list[Member] = [("a", None, [A], {}), ("b", "z", [A, B], {}), ("c", "y", [A], {})]
    found = assign("range", members, {A: 4, B: 2}, homogeneous=False)
    assert found == [{A: (3,)}, {A: (2,), B: (0, 1)}, {A: (0, 1)}]


def test_simple_shares_assignable_partitions() -> None:
    members: list[Member] = [(f"m{at}", None, [A], {}) for at in range(4)]
    assert assign("simple", members, {A: 2}, homogeneous=True) == [{A: (0,)}, {A: (0,)}, {A: (1,)}, {A: (1,)}]
    assert assign("simple", members, {A: 2}, homogeneous=True, assignable={A: [1]}) == [{A: (1,)}] * 4
    assert assign("simple", members, {A: 2}, homogeneous=True, assignable={}) == [{}] * 4


@pytest.mark.parametrize("assignor", ["uniform", "range", "simple"])
@pytest.mark.parametrize("homogeneous", [True, False])
def test_topics_that_do_not_exist_are_ignored(assignor: str, homogeneous: bool) -> None:
    member: Member = ("m", None, [A, B], {B: [0, 1], A: [7]})
    assert assign(assignor, [member], {A: 1}, homogeneous=homogeneous) == [{A: (0,)}]
    assert assign(assignor, [member], {}, homogeneous=homogeneous) == [{}]
    assert assign(assignor, [], {A: 1}, homogeneous=homogeneous) == []


def test_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="sticky"):
        assign("sticky", [], {}, homogeneous=True)
    with pytest.raises(ValueError, match="-1 partitions"):
        assign("range", [], {A: -1}, homogeneous=True)


def test_hashes_change_with_the_topic() -> None:
    image = image_with(t=2, uu=3)
    assert topic_hash(image, "absent") is None
    assert topic_hash(image, "t") == topic_hash(image_with(t=2), "t")
    assert topic_hash(image, "t") != topic_hash(image_with(t=3), "t")
    hashes = [(name, topic_hash(image, name) or 0) for name in ("t", "uu")]
    assert group_hash(hashes) == group_hash(reversed(hashes)) != group_hash(hashes[:1])
    assert group_hash([]) == 0


def test_patterns() -> None:
    pattern = TopicPattern(r"t\d+|\Qa.b\E")
    image = image_with(t1=1, t=1, a__b=1, axxxb=1, t10=1)
    assert pattern.matching(image) == ["a.b", "t1", "t10"]
    assert pattern.among(["t10", "x", "t1"]) == ["t10", "t1"]
    assert pattern.matches("t1")
    assert not pattern.matches("at1")
    assert pattern.pattern == r"t\d+|\Qa.b\E"
    assert TopicPattern(".*").matching(Image()) == []


@pytest.mark.parametrize(("pattern", "named"), [("(?=a)b", r"unsupported Perl syntax: `\(\?=`"), (r"(a)\1", "escape")])
def test_patterns_that_re2_lacks(pattern: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TopicPattern(pattern)
