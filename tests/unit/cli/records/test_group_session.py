"""A member that the group removes while it gives partitions up, and one whose coordinator is away for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.admin.client import Client
from klamm.cli.membership.consumer_member import ConsumerMember
from klamm.cli.records.consume import Outages
from klamm.cli.records.group_session import GroupSession
from klamm.client import BrokerError
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_partition import TopicPartition

TOPIC_ID = UUID(int=7)


class Reading:
    """A reader that has read each assigned partition up to offset 5."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.is_done = False

    def assign(self, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        self.assigned |= set(partitions)
        self.positions |= dict.fromkeys(partitions, 5)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            del self.positions[one]


class Coordinator:
    """Assigns two partitions, takes one back, and then does not know the committing member."""

    def __init__(self) -> None:
        self.is_known = True
        self.refusals = 0
        """How often it is not available."""
        self.assignments = iter([(0, 1), (0,)])
        self.broker = FakeBroker(
            {
                ApiKey.FIND_COORDINATOR: (3, 3, self._find),
                ApiKey.METADATA: (12, 12, self._metadata),
                ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, 1, self._heartbeat),
                ApiKey.OFFSET_FETCH: (5, 5, lambda request, version: {"topics": [], "error_code": ErrorCode.NONE}),
                ApiKey.OFFSET_COMMIT: (9, 9, self._commit),
            }
        )

    @property
    def _address(self) -> dict[str, object]:
        host, port = self.broker.address.split(":")
        return {"node_id": 1, "host": host, "port": int(port)}

    def _find(self, request: Any, version: int) -> Mapping[str, object]:
        self.refusals -= 1
        code = ErrorCode.NONE if self.refusals < 0 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {"throttle_time": 0, "error_code": code} | self._address

    def _metadata(self, request: Any, version: int) -> Mapping[str, object]:
        partitions = [
            {
                "error_code": ErrorCode.NONE,
                "partition_index": at,
                "leader_id": 1,
                "replica_nodes": [1],
                "isr_nodes": [1],
            }
            for at in (0, 1)
        ]
        topic = {"error_code": ErrorCode.NONE, "name": "t", "topic_id": TOPIC_ID, "partitions": partitions}
        return {"brokers": [self._address], "controller_id": 1, "topics": [topic]}

    def _heartbeat(self, request: Any, version: int) -> Mapping[str, object]:
        if not self.is_known and request.member_epoch:
            return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        partitions = next(self.assignments, None)
        assigned = [{"topic_id": TOPIC_ID, "partitions": partitions}]
        assignment = None if partitions is None else {"topic_partitions": assigned}
        return {"error_code": ErrorCode.NONE, "member_epoch": 1, "heartbeat_interval": 0, "assignment": assignment}

    def _commit(self, request: Any, version: int) -> Mapping[str, object]:
        self.is_known = False
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": ErrorCode.UNKNOWN_MEMBER_ID}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        return {"topics": topics}


def test_a_member_removed_while_it_revokes_stops_reading() -> None:
    coordinator, reading = Coordinator(), Reading()
    reader: Any = reading
    with coordinator.broker, Client(coordinator.broker.address) as client:
        session = GroupSession(client, reader, ConsumerMember("team", frozenset({"t"}), "m"))
        session.keep_up()
    assert reading.assigned == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert not coordinator.is_known, "it committed before it gave a partition up"
    assert reading.positions == {}, "it may not read on what the group has given to others"


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.mark.usefixtures("no_pauses")
def test_a_member_that_follows_waits_for_its_coordinator_however_long_that_takes() -> None:
    coordinator, reading = Coordinator(), Reading()
    coordinator.refusals = 200
    reader: Any = reading
    with coordinator.broker, Client(coordinator.broker.address) as client:
        session = GroupSession(client, reader, ConsumerMember("team", frozenset({"t"}), "m"))
        outages = Outages(client, is_waiting=True)
        while not reading.assigned:
            with outages:
                session.keep_up()
    assert coordinator.refusals < 0


@pytest.mark.usefixtures("no_pauses")
def test_a_member_that_does_not_follow_reports_a_coordinator_that_is_away() -> None:
    coordinator = Coordinator()
    coordinator.refusals = 200
    reader: Any = Reading()
    with coordinator.broker, Client(coordinator.broker.address) as client:
        session = GroupSession(client, reader, ConsumerMember("team", frozenset({"t"}), "m"))
        with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE"), Outages(client, is_waiting=False):
            session.keep_up()
