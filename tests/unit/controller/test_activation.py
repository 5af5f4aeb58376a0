"""The activation of a controller (`ActivationRecordsGenerator`), and its periodic tasks."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import Cluster, bootstrap, uuid

from klamm._engine.metadata import Image
from klamm.controller.activation import UnfinishedTransactionError, activation_records
from klamm.controller.periodic import PeriodicSchedule, PeriodicSettings, PeriodicTask, intervals_ms
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    TopicRecord,
    decode,
    encode,
)
from klamm.protocol.messages.registration import AllocateProducerIdsRequest, AllocateProducerIdsResponse

ABORT = AbortTransactionRecord(reason="Controller failover")
BEGIN = BeginTransactionRecord(name="Bootstrap records")
END = EndTransactionRecord()


def level(name: str, value: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=value)


def test_an_empty_log_gets_the_bootstrap_records_in_a_transaction() -> None:
    features = {"metadata.version": 30, "group.version": 1}
    result = activation_records(Image(), bootstrap(features), 1)
    assert [decode(record) for record in result.records] == [
        BEGIN,
        level("metadata.version", 30),
        level("group.version", 1),
        END,
    ]
    assert not result.is_atomic


def test_before_transactions_it_is_one_batch() -> None:
    result = activation_records(Image(), bootstrap({"metadata.version": 12}), 1)
    assert [decode(record) for record in result.records] == [level("metadata.version", 12)]
    assert result.is_atomic


def test_eligible_leader_replicas_need_a_min_isr_for_the_cluster() -> None:
    features = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
    result = activation_records(Image(), bootstrap(features), 2)
    *_, config, end = [decode(record) for record in result.records]
    assert config == ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    assert end == END
    image = Image().apply(list(result.records))
    assert (image.is_elr_enabled, image.config(4, "", "min.insync.replicas")) == (True, "2")


def test_an_existing_log_needs_no_records() -> None:
    image = Image().apply(bootstrap({"metadata.version": 30}))
    assert activation_records(image, bootstrap({"metadata.version": 30}), 1).records == ()


def test_a_transaction_that_was_left_open_is_aborted() -> None:
    image = Image().apply(bootstrap({"metadata.version": 30}))
    image = image.apply([encode(BEGIN, 0), encode(TopicRecord(name="half", topic_id=uuid(1)), 0)])
    result = activation_records(image, bootstrap({"metadata.version": 30}), 1)
    assert [decode(record) for record in result.records] == [ABORT]
    assert image.apply(list(result.records)).topic_names() == []


def test_an_incomplete_bootstrap_is_aborted_and_written_again() -> None:
    image = Image().apply([encode(BEGIN, 0), *bootstrap({"metadata.version": 30})])
    result = activation_records(image, bootstrap({"metadata.version": 30}), 1)
    assert [decode(record) for record in result.records] == [ABORT, BEGIN, level("metadata.version", 30), END]
    assert image.apply(list(result.records)).metadata_version == 30


def test_a_transaction_before_its_metadata_version_is_not_repaired() -> None:
    image = Image().apply([*bootstrap({"metadata.version": 12}), encode(BEGIN, 0)])
    with pytest.raises(UnfinishedTransactionError, match=r"metadata\.version 12"):
        activation_records(image, [], 1)


def test_activation_before_anything_is_replayed_serves_no_request() -> None:
    cluster = Cluster()
    assert cluster.controller.on_not_leader(cluster.now_ms) == []
    assert not cluster.controller.is_active
    assert cluster.controller.deadline_ms is None
    answer = cluster.ask(AllocateProducerIdsRequest(0, 0))
    assert answer.error_code is ErrorCode.NOT_CONTROLLER


# Producer ids


def test_producer_ids_are_allocated_in_blocks_of_a_thousand() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    for start in (0, 1_000, 2_000):
        request = AllocateProducerIdsRequest(1, cluster.epochs[1])
        answer = cluster.ask(request)
        assert answer == AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1_000)
        assert cluster.records()[-1] == ProducerIdsRecord(
            broker_id=1, broker_epoch=cluster.epochs[1], next_producer_id=start + 1_000
        )
    cluster.fail_over()
    answer = cluster.ask(request)
    assert answer.producer_id_start == 3_000


def test_producer_ids_for_a_stale_broker_and_when_they_are_used_up() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    stale = AllocateProducerIdsRequest(1, cluster.epochs[1] + 1)
    assert cluster.ask(stale).error_code is ErrorCode.STALE_BROKER_EPOCH
    last = ProducerIdsRecord(broker_id=1, broker_epoch=cluster.epochs[1], next_producer_id=2**63 - 1_000)
    cluster.controller.replay([encode(last, 0)], len(cluster.log))
    request = AllocateProducerIdsRequest(1, cluster.epochs[1])
    answer = cluster.ask(request)
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


# The clock


def test_the_tasks_and_their_intervals() -> None:
    settings = PeriodicSettings()
    assert intervals_ms(settings) == {
        PeriodicTask.WRITE_NO_OP_RECORD: 500,
        PeriodicTask.MAYBE_FENCE_STALE_BROKER: 1_125,
        PeriodicTask.ELECT_PREFERRED: 300_000,
        PeriodicTask.ELECT_UNCLEAN: 300_000,
    }
    off = PeriodicSettings(max_idle_interval_ms=0, auto_leader_rebalance=False, session_timeout_ms=3)
    assert intervals_ms(off) == {PeriodicTask.MAYBE_FENCE_STALE_BROKER: 1, PeriodicTask.ELECT_UNCLEAN: 300_000}


def test_a_schedule_returns_each_task_when_it_is_due() -> None:
    schedule = PeriodicSchedule(PeriodicSettings(max_idle_interval_ms=400))
    assert schedule.deadline_ms is None
    assert schedule.pop_due(10**9) is None
    schedule.start(1_000)
    assert schedule.deadline_ms == 1_400
    assert schedule.pop_due(1_399) is None
    assert schedule.pop_due(1_450) is PeriodicTask.WRITE_NO_OP_RECORD
    assert schedule.deadline_ms == 1_850, "counted from when it ran, not from when it was due"
    schedule.again(PeriodicTask.WRITE_NO_OP_RECORD, 1_450)
    assert schedule.pop_due(1_450) is PeriodicTask.WRITE_NO_OP_RECORD
    assert schedule.pop_due(1_450) is None
    schedule.stop()
    assert schedule.deadline_ms is None


def test_no_op_records_keep_the_log_moving() -> None:
    cluster = Cluster()
    assert cluster.run_clock(2_000) == [NoOpRecord()] * 4
    silent = Cluster(static={"metadata.max.idle.interval.ms": "0"})
    assert silent.run_clock(2_000) == []


def test_a_log_that_no_other_replica_fetches_stays_as_it_is() -> None:
    cluster = Cluster()
    cluster.is_followed = False
    assert cluster.run_clock(10_000) == []
    cluster.is_followed = True
    assert NoOpRecord() in cluster.run_clock(2_000)


def test_postponed_tasks_set_no_deadline() -> None:
    schedule = PeriodicSchedule(PeriodicSettings(max_idle_interval_ms=400, session_timeout_ms=16_000))
    schedule.start(1_000)
    assert schedule.pop_due(1_400) is PeriodicTask.WRITE_NO_OP_RECORD
    schedule.put_off(PeriodicTask.WRITE_NO_OP_RECORD, 1_400)
    assert schedule.deadline_ms == 3_000
    assert {schedule.pop_due(3_000), schedule.pop_due(3_000)} == {
        PeriodicTask.WRITE_NO_OP_RECORD,
        PeriodicTask.MAYBE_FENCE_STALE_BROKER,
    }
    schedule.put_off(PeriodicTask.WRITE_NO_OP_RECORD, 3_000)
    assert schedule.pop_due(3_000) is None
