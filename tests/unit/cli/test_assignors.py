from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from klamm.cli.membership.assignors import (
    Assigned,
    Subscriber,
    TopicPartition,
    assign_cooperatively,
    assign_ranges,
    assign_sticky,
)

COUNTS: Mapping[str, int] = {"a": 5, "b": 1, "c": 0}


def subscribers(*topics_of: str) -> list[Subscriber]:
    """Members m0, m1, ...: each subscribes to the topics named by the letters of its word."""
    return [Subscriber(f"m{number}", frozenset(topics)) for number, topics in enumerate(topics_of)]


def owning(assigned: Mapping[str, Sequence[TopicPartition]], topics: str, generation: int = 1) -> list[Subscriber]:
    return [
        Subscriber(member, frozenset(topics), owned=tuple(owned), generation=generation)
        for member, owned in assigned.items()
    ]


def indexes(assigned: Assigned, topic: str) -> list[list[int]]:
    return [[index for name, index in partitions if name == topic] for partitions in assigned.values()]


def moved(before: Mapping[str, Sequence[TopicPartition]], after: Assigned) -> int:
    """Partitions whose owner has changed."""
    owner = {partition: member for member, partitions in before.items() for partition in partitions}
    return sum(owner.get(one, member) != member for member, partitions in after.items() for one in partitions)


def test_ranges_are_contiguous_and_the_first_members_get_one_more() -> None:
    assigned = assign_ranges(subscribers("ab", "ab", "a", "z"), {**COUNTS, "z": 1})
    assert indexes(assigned, "a") == [[0, 1], [2, 3], [4], []]
    assert indexes(assigned, "b") == [[0], [], [], []]
    assert indexes(assigned, "z") == [[], [], [], [0]]


def test_ranges_go_to_static_members_first_by_instance() -> None:
    members = [
        Subscriber("a", frozenset("t")),
        Subscriber("c", frozenset("t"), "second"),
        Subscriber("b", frozenset("t"), "third"),
    ]
    assert assign_ranges(members, {"t": 3}) == {"a": [("t", 2)], "c": [("t", 0)], "b": [("t", 1)]}


def test_a_new_member_gets_only_its_share() -> None:
    before = {"old": [("a", index) for index in range(5)], "new": []}
    after = assign_sticky(owning(before, "a"), {"a": 5})
    assert [len(after["old"]), len(after["new"]), moved(before, after)] == [3, 2, 2]


def test_ownership_of_an_old_generation_is_ignored() -> None:
    members = owning({"late": [("a", 0), ("a", 1)]}, "a", 1) + owning({"here": [("a", 0)], "too": [("a", 2)]}, "a", 2)
    after = assign_sticky(members, {"a": 3})
    assert after == {"late": [("a", 1)], "here": [("a", 0)], "too": [("a", 2)]}


def test_cooperatively_owned_partitions_are_not_reassigned_at_once() -> None:
    before = {"old": [("a", index) for index in range(4)], "new": []}
    first = assign_cooperatively(owning(before, "a"), {"a": 4})
    assert first == {"old": [("a", 0), ("a", 1)], "new": []}
    second = assign_cooperatively(owning(first, "a", 2), {"a": 4})
    assert second == {"old": [("a", 0), ("a", 1)], "new": [("a", 2), ("a", 3)]}


@given(
    topics=st.lists(st.text("abc", max_size=3), min_size=1, max_size=6),
    counts=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
    claims=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12),
    data=st.data(),
)
def test_with_any_ownership_every_partition_has_one_member_and_shares_are_even(
    topics: list[str], counts: dict[str, int], claims: list[TopicPartition], data: st.DataObject
) -> None:
    members = [
        Subscriber(
            f"m{number}",
            frozenset(wanted),
            owned=tuple(data.draw(st.lists(st.sampled_from(claims), unique=True))) if claims else (),
            generation=data.draw(st.integers(-1, 2)),
        )
        for number, wanted in enumerate(topics)
    ]
    wanted = {topic for one in members for topic in one.topics}
    every = sorted((topic, index) for topic, count in counts.items() if topic in wanted for index in range(count))
    for assigned in (assign_ranges(members, counts), assign_sticky(members, counts)):
        assert sorted(one for partitions in assigned.values() for one in partitions) == every
        assert all(topic in one.topics for one in members for topic, _ in assigned[one.member_id])
    sticky = assign_sticky(members, counts)
    if len({one.topics for one in members}) == 1:
        sizes = [len(partitions) for partitions in sticky.values()]
        assert max(sizes) - min(sizes) <= 1
    careful = assign_cooperatively(members, counts)
    for one in members:
        others = {partition for other in members if other is not one for partition in other.owned}
        assert set(careful[one.member_id]) <= set(sticky[one.member_id])
        assert not (set(careful[one.member_id]) - set(one.owned)) & others
