"""The plan of a reassignment: the wanted number of replicas, even over brokers and racks, with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.admin.reassignments import Plan, Replicas, planned
from klamm.client import ClientError
from klamm.protocol.topic_partition import TopicPartition

RACKLESS = dict.fromkeys((1, 2, 3, 4))
RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


def topic(*partitions: Replicas) -> dict[TopicPartition, Replicas]:
    return {TopicPartition("t", index): replicas for index, replicas in enumerate(partitions)}


def changes(
    current: dict[TopicPartition, Replicas], brokers: dict[int, str | None], factor: int | None = None
) -> dict[int, Replicas]:
    return {place.partition: replicas for place, replicas in planned(current, brokers, factor).items()}


def test_an_even_placement_is_kept() -> None:
    assert changes(topic((1, 2), (2, 3), (3, 4), (4, 1)), RACKLESS) == {}


def test_replicas_are_added_where_the_fewest_are() -> None:
    assert changes(topic((1,), (2,)), RACKLESS, 2) == {0: (1, 3), 1: (2, 4)}


def test_replicas_move_from_a_broker_that_has_more() -> None:
    assert changes(topic((1,), (1,), (2,)), {1: None, 2: None, 3: None}) == {0: (3,)}


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    assert changes(topic((1,)), RACKS, 3) == {0: (1, 3, 5)}


def test_replicas_at_the_end_of_the_list_are_removed() -> None:
    assert changes(topic((1, 2, 3), (4, 3, 2)), RACKLESS, 2) == {0: (1, 2), 1: (4, 3)}


def test_brokers_that_are_not_listed_lose_their_replicas() -> None:
    after = changes(topic((1, 2), (2, 3)), {2: None, 3: None})
    assert sorted(after[0]) == [2, 3]
    assert 1 not in after


def test_a_new_broker_gets_its_share() -> None:
    current = topic(*[(1, 2), (2, 3), (3, 1)] * 4)
    after = Plan(current, RACKLESS, None).replicas
    assert Counter(each for replicas in after.values() for each in replicas) == {1: 6, 2: 6, 3: 6, 4: 6}
    moved = sum(len(set(after[place]) - set(current[place])) for place in current)
    assert moved == 6


def test_a_new_broker_does_not_lead_all_that_it_gets() -> None:
    before = topic((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
    after = before | planned(before, RACKLESS)
    assert sum(4 in replicas for replicas in after.values()) == 3
    assert Counter(replicas[0] for replicas in after.values()) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_more_replicas_than_brokers_are_rejected() -> None:
    with pytest.raises(ClientError, match="5 replicas of a partition need as many brokers, and there are 4"):
        planned(topic((1,)), RACKLESS, 5)


@given(
    st.lists(st.permutations(sorted(RACKS)).map(lambda each: tuple(each[:3])), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(1, 6)),
    st.sets(st.sampled_from(sorted(RACKS)), min_size=3),
)
def test_any_plan(current: list[Replicas], factor: int | None, brokers: set[int]) -> None:
    known: dict[int, str | None] = {each: RACKS[each] for each in brokers}
    if (factor or 3) > len(known):
        with pytest.raises(ClientError):
            planned(topic(*current), known, factor)
        return
    after = Plan(topic(*current), known, factor).replicas
    for replicas in after.values():
        assert len(replicas) == (factor or 3)
        assert len(set(replicas)) == len(replicas)
        assert set(replicas) <= brokers
    # A second plan has no changes.
    settled = {place: tuple(replicas) for place, replicas in after.items()}
    again = Plan(settled, known, factor).replicas
    loads = [Counter(each for replicas in plan.values() for each in replicas) for plan in (after, again)]
    spread = [max(load[each] for each in brokers) - min(load[each] for each in brokers) for load in loads]
    assert spread[1] <= spread[0]
