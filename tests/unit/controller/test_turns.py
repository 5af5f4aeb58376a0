"""Work that the controller defers to later turns: the order of operations, per broker and relative to tasks."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import Cluster, registration

from klamm.controller.leadership import elections
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import BrokerRegistrationChangeRecord, NoOpRecord, PartitionChangeRecord
from klamm.protocol.messages.registration import BrokerHeartbeatRequest, UnregisterBrokerRequest

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "PART_RECORDS_MAX", 2)
    monkeypatch.setattr(elections, "PART_PARTITIONS_MAX", 5)


def filled() -> Cluster:
    """Two brokers; broker 1 leads ten partitions."""
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    for number in range(10):
        cluster.create_assigned(f"t{number}", [1, 2])
    return cluster


def fencing(cluster: Cluster) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(1, cluster.epochs[1], current_metadata_offset=len(cluster.log), want_fence=True)


def test_requests_of_one_broker_are_processed_in_order() -> None:
    cluster = filled()
    first = cluster.begin(fencing(cluster))
    waiting = [cluster.begin(UnregisterBrokerRequest(1)) for _ in range(2)]
    other = cluster.begin(UnregisterBrokerRequest(7))
    assert cluster.answers.pop(other).error_code is ErrorCode.BROKER_ID_NOT_REGISTERED, (
        "the request of another broker does not wait"
    )
    assert cluster.answers == {}
    cluster.take_turns()
    assert list(cluster.answers) == [first, *waiting]
    codes = [cluster.answers[ticket].error_code for ticket in waiting]
    assert codes == [ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED]
    assert cluster.controller.deadline_ms is not None
    assert cluster.controller.deadline_ms > cluster.now_ms


def test_undecided_requests_fail_when_leadership_ends() -> None:
    cluster = filled()
    begun, waiting = cluster.begin(fencing(cluster)), cluster.begin(registration(1, incarnation=9), 4)
    end = len(cluster.log)
    cluster.carry_out(cluster.controller.on_not_leader(cluster.now_ms))
    assert [cluster.answers[one].error_code for one in (begun, waiting)] == [ErrorCode.NOT_CONTROLLER] * 2
    assert cluster.controller.deadline_ms is None
    cluster.take_turn()
    assert len(cluster.log) == end


def test_a_task_that_is_already_due_runs_between_two_parts() -> None:
    cluster = filled()
    start = len(cluster.log)
    ticket = cluster.begin(fencing(cluster))
    cluster.now_ms += 500
    while ticket not in cluster.answers:
        cluster.take_turn()
        cluster.now_ms += 1
    kinds = [type(record) for record in cluster.records(start)]
    assert kinds.count(NoOpRecord) == 1
    assert kinds[-1] is BrokerRegistrationChangeRecord


def test_no_task_starts_while_one_is_running() -> None:
    cluster = filled()
    start = len(cluster.log)
    while PartitionChangeRecord not in map(type, cluster.records(start)):
        assert cluster.controller.deadline_ms is not None
        cluster.now_ms = max(cluster.now_ms, cluster.controller.deadline_ms)
        cluster.take_turn()
    cluster.now_ms += 10_000
    start = len(cluster.log)
    cluster.take_turns()
    kinds = [type(record) for record in cluster.records(start)]
    end = kinds.index(BrokerRegistrationChangeRecord)
    assert set(kinds[:end]) == {PartitionChangeRecord}, "the stale broker is fenced first"
    assert NoOpRecord in kinds[end:]
