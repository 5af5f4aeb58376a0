"""The output of `klamm groups members --follow`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klamm.cli.admin.group_members import changes, in_words, summary
from klamm.protocol.membership import CLASSIC, CONSUMER, STREAMS, Member, Membership, Tasks
from klamm.protocol.topic_partition import TopicPartition


def of(*partitions: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, at) for at in partitions)


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ((), "nothing"),
        (of(3), "t-3"),
        (of(0, 1, 2, 4, 6, 7), "t-0..2,4,6..7"),
        ((*of(2), *of(0, 1, topic="a")), "a-0..1 t-2"),
    ],
)
def test_partitions_in_words(partitions: tuple[TopicPartition, ...], words: str) -> None:
    assert in_words(partitions) == words


ALICE = Member("alice", None, "client", "host", CONSUMER, 2, ("t",), None, of(0, 1), of(0, 1))
BOB = Member("bob", "static", "client", "host", CONSUMER, 2, ("t",), None, (), of(1))
GROUP = Membership("g", CONSUMER, "Stable", "uniform", (ALICE,), 2, 2)


def test_a_group_in_a_line() -> None:
    assert summary(GROUP) == "g: consumer group, Stable, assignor uniform, epoch 2"
    assert summary(replace(GROUP, epoch=3, state="Assigning")).endswith(
        "Assigning, assignor uniform, epoch 3, target of epoch 2"
    )
    assert summary(Membership("g", CLASSIC, "Empty", "", ())) == "g: classic group, Empty"


def test_joins_leaves_and_moved_partitions() -> None:
    assert list(changes(GROUP, GROUP)) == []
    moving = replace(ALICE, target=of(0))
    joined = replace(GROUP, state="Reconciling", members=(moving, BOB), epoch=3, assignment_epoch=3)
    assert list(changes(GROUP, joined)) == [
        "g: consumer group, Reconciling, assignor uniform, epoch 3",
        "  alice: has t-0..1, will have t-0",
        "+ bob (static) joined; has nothing, will have t-1",
    ]
    left = replace(joined, members=(BOB,))
    assert list(changes(joined, left)) == ["- alice left; it had t-0..1"]
    renewed = replace(joined, members=(replace(moving, epoch=3), BOB))
    assert list(changes(joined, renewed)) == [], "an epoch alone moves nothing"


def test_tasks_that_move_are_changes() -> None:
    active = Tasks(active=of(0, 1, topic="0"))
    member = Member(
        "streams", None, "client", "host", STREAMS, 2, ("t",), None, of(0, 1), of(0, 1), "p", active, active
    )
    group = Membership("g", STREAMS, "Stable", "", (member,), 2, 2)
    warmed = replace(group, members=(replace(member, target_tasks=replace(active, standby=of(2, topic="0"))),))
    assert list(changes(group, warmed)) == ["  streams: has t-0..1"]
