"""Settings of consumer groups (resource type 32), read at each use; and sessions after a pause of the process."""

from __future__ import annotations

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.node.views.group_topics import group_configs
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import ConfigRecord, encode_at

from .consumer_room import GROUP, ConsumerRoom, T
from .images import image_of


@pytest.mark.parametrize(("value", "interval_ms"), [("7000", 7_000), ("1", 5_000), ("99999", 15_000)])
def test_the_heartbeat_interval_of_a_group_is_within_the_brokers_bounds(value: str, interval_ms: int) -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    assert first.beat().heartbeat_interval_ms == 5_000
    room.group_configs["consumer.heartbeat.interval.ms"] = value
    assert first.beat().heartbeat_interval_ms == interval_ms


def test_the_session_timeout_of_a_group_counts_from_the_next_heartbeat() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    room.group_configs["consumer.session.timeout.ms"] = "60000"
    room.pass_time(44_000)
    first.beat()
    room.pass_time(59_999)
    assert not room.consumers.is_empty
    room.pass_time(1)
    assert room.consumers.is_empty


def test_the_assignment_interval_of_the_cluster_may_change_while_brokers_run() -> None:
    def config(resource_type: int, resource: str, name: str, value: str) -> bytes:
        return encode_at(ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value), 30)

    image = image_of(T)
    find = group_configs(lambda: image)
    assert find(GROUP, "consumer.assignment.interval.ms") is None
    image = image.apply([config(4, "", "group.consumer.assignment.interval.ms", "17")])
    assert find(GROUP, "consumer.assignment.interval.ms") == "17"
    image = image.apply([config(32, GROUP, "consumer.assignment.interval.ms", "5")])
    assert find(GROUP, "consumer.assignment.interval.ms") == "5"
    assert find("other", "consumer.assignment.interval.ms") == "17"


def test_a_pause_of_the_process_renews_all_sessions() -> None:
    room = ConsumerRoom()
    first = room.joined("m1")
    room.now_ms += 100_000
    room.take(room.hosted.on_pause(room.now_ms, 100_000))
    room.pass_time(44_000)
    assert first.beat().error_code is ErrorCode.NONE


def test_the_first_assignor_is_the_default() -> None:
    room = ConsumerRoom(config=GroupConfig(group_consumer_assignors=("range", "uniform")))
    room.joined("m1")
    assert room.described().assignor_name == "range"
