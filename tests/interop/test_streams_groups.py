"""Streams groups compared with Apache Kafka's own classes: bytes of records, and assignments of tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from klamm._engine.groups import assign_tasks
from klamm.coordinator.groups.streams.records import record_value
from tests.interop.java_program import JavaProgram, java_program
from tests.support.foreign import require
from tests.support.streams_groups import NAMES, RandomValues, kafka_json

GROUPS = 600
ROUNDS = 5
FIRST_PROCESS = 0x4000
FIRST_MEMBER = 0x5000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaProgram]:
    require("java", "mvn")
    with java_program("StreamsGroups.java") as running:
        yield running


def test_records_have_kafkas_bytes(kafka: JavaProgram) -> None:
    for seed in range(200):
        for value in RandomValues(seed).all():
            answer = kafka.ask(record=f"{NAMES[type(value)]}Value", value=kafka_json(value))
            assert b"\0\0" + bytes.fromhex(answer["bytes"]) == record_value(value), value


class RandomGroup:
    """A group whose members join and leave.

    Kafka's assignor chooses among equal loads in the iteration order of its hash maps. One-character ids, counted from
    a multiple of the map sizes, iterate in sort order, so that the whole assignment is determined. Process ids are
    consecutive for the same reason.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._free = [chr(FIRST_MEMBER + at) for at in range(16)]
        rng.shuffle(self._free)
        self._process_count = rng.randint(1, 6)
        self.members: dict[str, dict[str, Any]] = {}
        self.subtopologies = {
            str(at): {"tasks": rng.randint(1, 12), "stateful": rng.random() < 0.6} for at in range(rng.randint(1, 4))
        }
        self.standbys = rng.randint(0, 3)
        for _ in range(rng.randint(1, 8)):
            self._join()

    def _join(self) -> None:
        process = self._rng.randrange(self._process_count)
        self.members[self._free.pop()] = {"process": process, "active": {}, "standby": {}}

    def change(self, assigned: Mapping[str, Any]) -> None:
        """The members own what was assigned; then one joins or leaves, or something else changes."""
        for member_id, member in self.members.items():
            member.update(assigned[member_id])
        match self._rng.randrange(10):
            case 0 | 1 | 2 | 3 if self._free:
                self._join()
            case 4 | 5 | 6 if len(self.members) > 1:
                del self.members[self._rng.choice(sorted(self.members))]
            case 7:
                self.standbys = self._rng.randint(0, 3)
            case 8:
                self.subtopologies[self._rng.choice(sorted(self.subtopologies))]["tasks"] += 1

    def by_id(self) -> dict[str, dict[str, Any]]:
        """The members in the order of their ids, with consecutive process ids."""
        used = sorted({member["process"] for member in self.members.values()})
        return {
            member_id: member | {"process": chr(FIRST_PROCESS + used.index(member["process"]))}
            for member_id, member in sorted(self.members.items())
        }


def by_engine(group: RandomGroup) -> dict[str, Any]:
    members = [(name, one["process"], one["active"], one["standby"]) for name, one in group.by_id().items()]
    subtopologies = [(name, one["tasks"], one["stateful"]) for name, one in group.subtopologies.items()]
    assigned = assign_tasks(members, subtopologies, standby_replicas=group.standbys)
    return {
        name: {"active": active, "standby": standby}
        for (name, *_), (active, standby) in zip(members, assigned, strict=True)
    }


def test_tasks_are_assigned_as_by_kafka(kafka: JavaProgram) -> None:
    rng = random.Random(1071)
    for _ in range(GROUPS):
        group = RandomGroup(rng)
        for _ in range(ROUNDS):
            expected = kafka.ask(members=group.by_id(), subtopologies=group.subtopologies, standbys=group.standbys)
            assert by_engine(group) == expected, (group.by_id(), group.subtopologies, group.standbys)
            group.change(expected)
