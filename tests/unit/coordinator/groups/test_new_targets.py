"""The targets that a computation changes are one change of the shard's state, however many members there are."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.modern.journal import Journal, value_before

from .consumer_room import INTERVAL_MS, ConsumerRoom, T


def pending_target(members: int) -> tuple[ConsumerRoom, int]:
    """A group with an uncommitted target of one more partition for each member, and how many changes it consists of."""
    room = ConsumerRoom(T._replace(partition_count=members))
    consumers = [room.joined(f"m{at}") for at in range(members)]
    room.now_ms += INTERVAL_MS
    for consumer in consumers * 3:
        consumer.beat()
    assert [sum(map(len, target.values())) for target in room.consumers.targets.values()] == [1] * members
    room.add_partitions(T._replace(partition_count=members), members)
    room.now_ms += INTERVAL_MS
    room.holds_appends = True
    room.heartbeat_of_later("m0", consumers[0].epoch)
    assert [sum(map(len, target.values())) for target in room.consumers.targets.values()] == [2] * members
    (snapshot,) = room.shard.pipeline.snapshots()
    return room, len(snapshot.undo)


def test_a_target_of_many_members_is_undone_in_as_many_steps_as_that_of_few() -> None:
    assert pending_target(members=20)[1] == pending_target(members=2)[1]


def test_a_target_that_is_not_written_is_rolled_back() -> None:
    room, _ = pending_target(members=3)
    written = len(room.log)
    room.fail()
    assert [sum(map(len, target.values())) for target in room.consumers.targets.values()] == [1] * 3
    assert len(room.log) == written
    assert room.reloaded().consumers.targets == room.consumers.targets


def test_only_changed_targets_are_written() -> None:
    room = ConsumerRoom()
    room.joined("a")
    room.now_ms += INTERVAL_MS
    written = len(room.log)
    room.joined("b")
    assert room.types(written).count(7) == 2, "both have a new target"
    room.now_ms += INTERVAL_MS
    written = len(room.log)
    room.joined("c", subscribed_topic_names=("other",))
    assert room.types(written).count(7) == 1, "a and b keep theirs"
    assert room.reloaded().consumers.targets == room.consumers.targets


@pytest.mark.parametrize("key", ["old", "new", "untouched"])
def test_the_value_before_a_change_of_many(key: str) -> None:
    mapping = {"old": 1, "untouched": 7}
    before, undo = dict(mapping), []
    journal = Journal(undo)
    journal.put_all(mapping, {"old": 2, "new": 3})
    journal.put(mapping, "old", 4)
    assert mapping == {"old": 4, "new": 3, "untouched": 7}
    assert value_before(undo, mapping, key) == before.get(key)
    for one in reversed(undo):
        one()
    assert mapping == before
