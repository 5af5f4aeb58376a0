"""Brokers: registration checks in order, heartbeats, fencing, shutdown (`ClusterControlManager`)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.cluster import CLUSTER_ID, WITH_ELR, Cluster, registration, uuid

from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    decode,
)
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    Listener,
    SupportedFeature,
    UnregisterBrokerRequest,
)

METADATA = SupportedFeature("metadata.version", 7, 30)


def change(cluster: Cluster, broker_id: int, **changed: Any) -> BrokerRegistrationChangeRecord:
    epoch = cluster.epochs[broker_id]
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **changed)


def test_a_registration_is_one_record_whose_offset_is_the_epoch() -> None:
    cluster = Cluster()
    start = len(cluster.log)
    answer = cluster.register(7, rack="r1", listeners=(Listener("PLAINTEXT", "h", 9092), Listener("SSL", "h", 9093, 1)))
    assert answer == BrokerRegistrationResponse(broker_epoch=start)
    (record,) = cluster.records(start)
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_id, record.broker_epoch, record.rack) == (7, start, "r1")
    assert (record.fenced, record.in_controlled_shutdown, record.is_migrating_zk_broker) == (True, False, False)
    assert [(each.name, each.port, each.security_protocol) for each in record.end_points] == [
        ("PLAINTEXT", 9092, 0),
        ("SSL", 9093, 1),
    ]
    assert list(record.log_dirs) == [uuid(107)]
    assert {each.name: each.max_supported_version for each in record.features}["metadata.version"] == 30


def refused(code: ErrorCode, **changed: Any) -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    end = len(cluster.log)
    assert cluster.register(7, **changed) == BrokerRegistrationResponse(code)
    assert len(cluster.log) == end


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (bytes(16),)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (uuid(8), bytes(15) + b"\x02")}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (uuid(8), uuid(8))}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (uuid(8), uuid(101))}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"features": (SupportedFeature("metadata.version", 7, 29),)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (SupportedFeature("group.version", 1, 1), METADATA)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_registrations_that_are_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    refused(code, **changed)


def test_the_checks_come_in_kafkas_order() -> None:
    """Each request also fails all later checks, so that the first failing check must be reported."""
    cluster = Cluster()
    cluster.add_brokers(7)
    wrong: dict[str, Any] = {"cluster_id": "x", "is_migrating_zk_broker": True, "log_dirs": (), "features": ()}
    codes = []
    for field, right in (
        ("cluster_id", CLUSTER_ID),
        ("session", None),
        ("is_migrating_zk_broker", False),
        ("log_dirs", (uuid(1),)),
        ("features", (METADATA,)),
    ):
        codes.append(cluster.register(7, **wrong).error_code)
        if field == "session":
            cluster.pass_silently(9_001)
        else:
            wrong[field] = right
    assert codes == [
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REGISTRATION,
    ]
    assert cluster.register(7, **wrong).error_code is ErrorCode.NONE


def test_a_finalized_feature_that_the_broker_does_not_list_counts_as_not_supported() -> None:
    cluster = Cluster({"metadata.version": 30, "group.version": 1})
    assert cluster.register(7, features=(METADATA,)).error_code is ErrorCode.UNSUPPORTED_VERSION
    features = (METADATA, SupportedFeature("group.version", 0, 1))
    assert cluster.register(7, features=features).error_code is ErrorCode.NONE


def test_a_second_incarnation_waits_for_the_session_of_the_first() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    assert cluster.register(1).error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.pass_silently(9_000)
    assert cluster.register(1).error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.pass_silently(1)
    assert cluster.register(1).error_code is ErrorCode.NONE


def test_a_restarted_combined_node_does_not_wait_for_its_former_session() -> None:
    cluster = Cluster(own_incarnation_id=uuid(1_009))
    cluster.add_brokers(1)
    another = cluster.ask(registration(1, incarnation=8), 4)
    assert another.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.ask(registration(1, incarnation=9), 4).error_code is ErrorCode.NONE


def test_a_broker_without_a_heartbeat_has_no_session() -> None:
    cluster = Cluster()
    first = cluster.register(1).broker_epoch
    assert cluster.register(1).broker_epoch > first


def test_the_same_incarnation_amends_what_it_registered() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    start = len(cluster.log)
    request = registration(1, incarnation=1, rack="other")
    answer = cluster.ask(request, 4)
    assert answer.broker_epoch == cluster.epochs[1]
    (record,) = cluster.records(start)
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.rack, record.fenced, record.broker_epoch) == ("other", False, cluster.epochs[1])


def test_a_new_incarnation_first_leaves_isrs_and_then_registers() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2], [2, 1])
    cluster.pass_silently(10_000)
    cluster.heartbeat(2)
    start = len(cluster.log)
    answer = cluster.register(1)
    *changes, last = cluster.records(start)
    assert isinstance(last, RegisterBrokerRecord)
    assert answer.broker_epoch == last.broker_epoch == start, "the epoch is the offset of the first record"
    assert all(isinstance(record, PartitionChangeRecord) for record in changes)
    assert [partition.leader for partition in cluster.image.partitions(topic_id)] == [2, 2]
    assert [partition.isr for partition in cluster.image.partitions(topic_id)] == [[2], [2]]
    # It must have replayed its own record, which is after the broker epoch's offset.
    assert cluster.heartbeat(1, current_metadata_offset=start).is_fenced
    assert not cluster.heartbeat(1, current_metadata_offset=len(cluster.log) - 1).is_fenced


@pytest.mark.parametrize(
    ("api_version", "tells_epoch", "stays_eligible"), [(4, True, True), (4, False, False), (2, True, False)]
)
def test_only_a_clean_shutdown_keeps_a_broker_eligible(
    api_version: int, tells_epoch: bool, stays_eligible: bool
) -> None:
    """KIP-966: a broker that sends its stored epoch has lost nothing; before v3 it cannot send it."""
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2], min_insync_replicas="2")
    previous = cluster.epochs[1]
    cluster.heartbeat(1, want_fence=True)
    assert cluster.image.partitions(topic_id)[0].elr == [1]
    cluster.pass_silently(10_000)
    cluster.register(1, previous_broker_epoch=previous if tells_epoch else -1, api_version=api_version)
    assert cluster.image.partitions(topic_id)[0].elr == ([1] if stays_eligible else [])


# Heartbeats


def test_a_heartbeat_of_an_unknown_broker_or_epoch() -> None:
    cluster = Cluster()
    stale = BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert cluster.heartbeat(1) == stale
    cluster.add_brokers(1)
    assert cluster.heartbeat(1, broker_epoch=cluster.epochs[1] - 1) == stale
    cluster.pass_silently(9_000)
    cluster.heartbeat(1, broker_epoch=cluster.epochs[1] - 1)
    cluster.pass_silently(1)
    assert cluster.register(1).error_code is ErrorCode.NONE, "a stale heartbeat does not prolong the session"


def test_unfencing_waits_until_the_broker_has_replayed_its_registration() -> None:
    cluster = Cluster()
    cluster.register(1)
    end = len(cluster.log)
    answer = cluster.heartbeat(1, current_metadata_offset=end - 2)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (False, True, False)
    assert len(cluster.log) == end
    answer = cluster.heartbeat(1, current_metadata_offset=end - 1)
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    assert cluster.records(end) == [change(cluster, 1, fenced=-1)]


def test_a_broker_that_has_caught_up_may_stay_fenced() -> None:
    cluster = Cluster()
    cluster.register(1)
    answer = cluster.heartbeat(1, want_fence=True)
    assert (answer.is_caught_up, answer.is_fenced) == (True, True)


def test_unfencing_elects_leaders_for_partitions_without_one() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    topic_id = cluster.create_assigned("foo", [1])
    cluster.heartbeat(1, want_fence=True)
    assert cluster.image.partitions(topic_id)[0].leader == -1
    start = len(cluster.log)
    assert not cluster.heartbeat(1).is_fenced
    first, second = cluster.records(start)
    assert first == change(cluster, 1, fenced=-1)
    assert isinstance(second, PartitionChangeRecord)
    assert second.leader == 1
    assert cluster.image.partitions(topic_id)[0].leader == 1


def test_fencing_takes_leadership_away_first() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    start = len(cluster.log)
    answer = cluster.heartbeat(1, want_fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    first, second = cluster.records(start)
    assert isinstance(first, PartitionChangeRecord)
    assert second == change(cluster, 1, fenced=1)
    (partition,) = cluster.image.partitions(topic_id)
    assert (partition.leader, partition.isr) == (2, [2])


def test_a_controlled_shutdown_from_request_to_permission() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    start = len(cluster.log)
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    first, second = cluster.records(start)
    assert first == change(cluster, 1, in_controlled_shutdown=1)
    assert decode(cluster.log[start])
    assert isinstance(second, PartitionChangeRecord)
    assert cluster.image.partitions(topic_id)[0].leader == 2
    # Broker 2 has not applied the moves yet; a topic that is created now must not be placed on broker 1.
    cluster.heartbeat(2, current_metadata_offset=start - 1)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2, current_metadata_offset=len(cluster.log) - 1)
    end = len(cluster.log)
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.records(end)[-1] == change(cluster, 1, fenced=1)


def test_a_sole_broker_may_shut_down() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    topic_id = cluster.create_assigned("foo", [1])
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    (partition,) = cluster.image.partitions(topic_id)
    assert (partition.leader, partition.isr) == (-1, [1]), "without ELR the ISR is never emptied"
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(2)
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down


def test_offline_directories_are_recorded_once() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, log_dirs=(uuid(11), uuid(12)))
    start = len(cluster.log)
    for offline in ((uuid(12), uuid(77)), (uuid(12),), ()):
        cluster.heartbeat(1, offline_log_dirs=offline)
    assert cluster.records(start) == [change(cluster, 1, log_dirs=(uuid(11),))]


def test_a_replica_in_an_offline_directory_leaves_the_isr() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    cluster.heartbeat(1, offline_log_dirs=(uuid(101),))
    (partition,) = cluster.image.partitions(topic_id)
    assert (partition.leader, partition.isr) == (2, [2])


def assign(cluster: Cluster, broker_id: int, *assignments: tuple[bytes, bytes, int]) -> tuple[ErrorCode, ...]:
    request = AssignReplicasToDirsRequest(broker_id, cluster.epochs[broker_id], assignments)
    answer = cluster.ask(request)
    assert answer.error_code is ErrorCode.NONE
    return answer.partition_errors


def test_a_replica_fails_with_its_assigned_directory() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, log_dirs=(uuid(11), uuid(12)))
    cluster.add_brokers(2)
    topic_id = cluster.create_assigned("foo", [1], [1], [2])
    start = len(cluster.log)
    told = [(uuid(11), topic_id, 0), (uuid(12), topic_id, 1), (uuid(12), topic_id, 2), (uuid(12), topic_id, 3)]
    refused = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert assign(cluster, 1, *told, (uuid(12), uuid(99), 0)) == (ErrorCode.NONE, ErrorCode.NONE, *refused)
    assert cluster.records(start) == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=(uuid(11),)),
        PartitionChangeRecord(topic_id=topic_id, partition_id=1, directories=(uuid(12),)),
    ]
    assert assign(cluster, 1, *told[:2]) == (ErrorCode.NONE, ErrorCode.NONE)
    assert len(cluster.log) == start + 2, "nothing changes a second time"
    cluster.heartbeat(1, offline_log_dirs=(uuid(12),))
    assert [each.leader for each in cluster.image.partitions(topic_id)] == [1, -1, 2]
    cluster.pass_silently(cluster.settings.brokers().session_timeout_ms + 1)
    cluster.add_brokers(1, log_dirs=(uuid(11), uuid(12)))
    assert [each.leader for each in cluster.image.partitions(topic_id)] == [1, 1, 2]


def test_a_replica_in_a_directory_that_is_offline_by_then_has_no_leader_either() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, log_dirs=(uuid(11), uuid(12)))
    topic_id = cluster.create_assigned("foo", [1])
    cluster.heartbeat(1, offline_log_dirs=(uuid(12),))
    start = len(cluster.log)
    assert assign(cluster, 1, (uuid(12), topic_id, 0)) == (ErrorCode.NONE,)
    assert cluster.records(start) == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=(uuid(12),)),
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1),
    ]


def test_directories_are_assigned_by_a_current_epoch_and_a_level_that_knows_them() -> None:
    for features, epoch, code in (
        ({"metadata.version": 16}, 0, ErrorCode.UNSUPPORTED_VERSION),
        ({"metadata.version": 17}, 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        cluster = Cluster(features)
        cluster.add_brokers(1)
        request = AssignReplicasToDirsRequest(1, cluster.epochs[1] + epoch, ())
        answer = cluster.ask(request)
        assert answer == AssignReplicasToDirsResponse(code)


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    start = len(cluster.log)
    for cordoned in (None, (), (), (uuid(101),), (uuid(101),)):
        cluster.heartbeat(1, cordoned_log_dirs=cordoned)
    assert cluster.records(start) == [
        change(cluster, 1, cordoned_log_dirs=()),
        change(cluster, 1, cordoned_log_dirs=(uuid(101),)),
    ]
    older = Cluster({"metadata.version": 29})
    older.add_brokers(1)
    end = len(older.log)
    older.heartbeat(1, cordoned_log_dirs=(uuid(101),))
    assert len(older.log) == end


# Sessions


def test_a_silent_broker_is_fenced_within_an_eighth_after_its_session() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    start_ms = cluster.now_ms
    while not any(record == change(cluster, 1, fenced=1) for record in cluster.records()):
        cluster.heartbeat(2)
        cluster.run_clock(100)
        assert cluster.now_ms - start_ms <= 9_000 * 9 / 8 + 100
    assert cluster.now_ms - start_ms > 9_000
    broker = cluster.image.broker(2)
    assert broker is not None
    assert not broker.fenced


def test_brokers_that_fail_together_are_fenced_one_by_one() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    topic_id = cluster.create_assigned("foo", [1, 2, 3])
    cluster.run_clock(11_000)
    for broker_id in (1, 2, 3):
        broker = cluster.image.broker(broker_id)
        assert broker is not None
        assert broker.fenced
    assert cluster.image.partitions(topic_id)[0].isr == [3]


def test_a_new_controller_starts_all_sessions_again() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    cluster.now_ms += 8_999
    cluster.fail_over()
    cluster.run_clock(8_900)
    broker = cluster.image.broker(1)
    assert broker is not None
    assert not broker.fenced
    assert not cluster.heartbeat(1).is_fenced


# Unregistering


def test_unregister() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("foo", [1, 2])
    start = len(cluster.log)
    answer = cluster.ask(UnregisterBrokerRequest(1))
    assert answer.error_code is ErrorCode.NONE
    assert cluster.records(start)[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=cluster.epochs[1])
    assert cluster.image.broker_ids() == [2]
    assert cluster.image.partitions(topic_id)[0].leader == 2
    again = cluster.ask(UnregisterBrokerRequest(1))
    assert again.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.heartbeat(1).error_code is ErrorCode.STALE_BROKER_EPOCH
