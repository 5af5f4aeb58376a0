"""NEXT_STATES over every pair, and its tables in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer import member
from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.groups.states import NEXT_STATES, GroupState, state_table

ALLOWED = {
    ("Empty", "PreparingRebalance"),
    ("PreparingRebalance", "Empty"),
    ("PreparingRebalance", "CompletingRebalance"),
    ("CompletingRebalance", "PreparingRebalance"),
    ("CompletingRebalance", "Stable"),
    ("Stable", "PreparingRebalance"),
    ("Empty", "Dead"),
    ("PreparingRebalance", "Dead"),
    ("CompletingRebalance", "Dead"),
    ("Stable", "Dead"),
}


@pytest.mark.parametrize("target", GroupState)
@pytest.mark.parametrize("source", GroupState)
def test_every_pair(source: GroupState, target: GroupState) -> None:
    group = ClassicGroup("g", source)
    if (source.value, target.value) in ALLOWED:
        assert target in NEXT_STATES[source]
        group.become(target, 7)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 7)
    else:
        with pytest.raises(AssertionError):
            group.become(target, 7)


def test_the_table_prints() -> None:
    lines = state_table().splitlines()
    assert lines[0] == "| from \\ to | Empty | PreparingRebalance | CompletingRebalance | Stable | Dead |"
    assert lines[4] == "| CompletingRebalance |  | yes |  | yes | yes |"
    assert len(lines) == 2 + len(GroupState)


def test_the_table_is_in_the_documentation() -> None:
    """After a change, paste the output of `state_table()` into ARCHITECTURE.md."""
    assert state_table() in (Path(__file__).parents[4] / "ARCHITECTURE.md").read_text()


def test_the_table_of_members_of_consumer_groups_is_in_the_documentation() -> None:
    """After a change, paste the output of `state_table()` into ARCHITECTURE.md."""
    assert member.state_table() in (Path(__file__).parents[4] / "ARCHITECTURE.md").read_text()


def test_no_member_of_a_consumer_group_goes_to_an_unknown_state() -> None:
    for state in MemberState:
        assert member.NEXT_STATES[state] == set(MemberState) - {MemberState.UNKNOWN}
