"""Operations on many partitions have the same result in parts as at once, whatever happens between the parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.support.simulated_time import simulated
from tests.unit.controller.cluster import WITH_ELR, Cluster, registration
from tests.unit.controller.test_driver import Rig, settle

from klamm.controller.leadership import elections
from klamm.controller.operations.nodes import BROKER_HEARTBEAT, BROKER_REGISTRATION
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    decode,
)
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState

TOPICS = 7


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "PART_RECORDS_MAX", 2)
    monkeypatch.setattr(elections, "PART_PARTITIONS_MAX", 5)


def filled(features: dict[str, int] | None = None) -> Cluster:
    """Brokers 1 to 3; each leads, and follows in, partitions of every topic."""
    cluster = Cluster(features)
    cluster.add_brokers(1, 2, 3)
    for number in range(TOPICS):
        cluster.create_assigned(f"t{number}", [1, 2], [2, 3], [3, 1])
    return cluster


def fence(cluster: Cluster) -> None:
    cluster.heartbeat(1, want_fence=True)


def shut_down(cluster: Cluster) -> None:
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down


def unregister(cluster: Cluster) -> None:
    cluster.ask(UnregisterBrokerRequest(1))


def come_back_unclean(cluster: Cluster) -> None:
    cluster.pass_silently(10_000)
    assert cluster.register(1).error_code is ErrorCode.NONE


def go_and_come_back(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id, want_fence=True)
    assert not cluster.heartbeat(3).is_fenced  # the last ISR member of most partitions


def expire(cluster: Cluster) -> None:
    for _ in range(12):
        cluster.run_clock(1_000)
        for broker_id in (2, 3):
            cluster.heartbeat(broker_id)


def records_of(happen: Callable[[Cluster], None], features: dict[str, int]) -> tuple[list[object], Cluster]:
    cluster = filled(features)
    start = len(cluster.log)
    happen(cluster)
    return [without_epoch(record) for record in cluster.records(start)], cluster


def without_epoch(record: MetadataRecord) -> object:
    """A registration's epoch is the next offset at that time, so it differs."""
    return ("registered", record.broker_id) if isinstance(record, RegisterBrokerRecord) else record


@pytest.mark.parametrize("features", [{"metadata.version": 30}, WITH_ELR], ids=["without ELR", "with ELR"])
@pytest.mark.parametrize("happen", [fence, shut_down, unregister, come_back_unclean, go_and_come_back, expire])
def test_the_result_is_the_same_in_parts(
    happen: Callable[[Cluster], None], features: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, at_once = records_of(happen, features)
    monkeypatch.setattr(elections, "PART_RECORDS_MAX", 2)
    monkeypatch.setattr(elections, "PART_PARTITIONS_MAX", 5)
    found, in_parts = records_of(happen, features)
    assert found == expected
    for broker_id in (1, 2, 3):
        one, other = (image.broker_partition_counts(broker_id) for image in (at_once.image, in_parts.image))
        assert (one.leaders, one.in_sync, one.eligible) == (other.leaders, other.in_sync, other.eligible)


def counted_parts(cluster: Cluster, during: Callable[[], None]) -> int:
    parts = [0]

    def count() -> None:
        parts[0] += 1

    cluster.between_turns = count
    during()
    return parts[0]


@pytest.mark.usefixtures("small_parts")
def test_the_position_of_the_brokers_own_record() -> None:
    kinds = {
        fence: (PartitionChangeRecord, BrokerRegistrationChangeRecord),
        shut_down: (BrokerRegistrationChangeRecord, PartitionChangeRecord),
        unregister: (PartitionChangeRecord, UnregisterBrokerRecord),
        come_back_unclean: (PartitionChangeRecord, RegisterBrokerRecord),
    }
    for happen, (first, last) in kinds.items():
        cluster = filled()
        start = len(cluster.log)
        assert counted_parts(cluster, lambda happen=happen, cluster=cluster: happen(cluster)) > 3
        records = cluster.records(start)
        assert (type(records[0]), type(records[-1])) == (first, last)


@pytest.mark.usefixtures("small_parts")
def test_a_topic_that_was_created_between_two_parts_is_not_forgotten() -> None:
    cluster = filled()
    made: list[bytes] = []

    def create_once() -> None:
        cluster.between_turns = lambda: None
        cluster.ask(DeleteTopicsRequest((DeleteTopicState("t0"),)))
        # It may get the place of the deleted one, which the operation has passed already.
        made.append(cluster.create_assigned("new", [1, 2]))

    cluster.between_turns = create_once
    fence(cluster)
    (partition,) = cluster.image.partitions(made[0])
    assert (partition.leader, partition.isr) == (2, [2])
    counts = cluster.image.broker_partition_counts(1)
    assert (counts.leaders, counts.in_sync) == (0, 0)


@pytest.mark.usefixtures("small_parts")
def test_a_new_controller_completes_an_operation_between_parts() -> None:
    cluster = filled()
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id, want_fence=True)
    leaderless = cluster.image.leaderless_partition_count
    request = BrokerHeartbeatRequest(3, cluster.epochs[3], current_metadata_offset=len(cluster.log))
    assert cluster.begin(request) not in cluster.answers
    assert 0 < cluster.image.leaderless_partition_count < leaderless
    cluster.fail_over()
    expected = filled()
    go_and_come_back(expected)
    assert cluster.image.leaderless_partition_count == expected.image.leaderless_partition_count


# The driver


async def leading_rig() -> tuple[Rig, dict[int, int]]:
    """Two brokers, of which 0 leads six partitions."""
    rig = Rig()
    rig.lead()
    rig.log.commit(10_000)
    epochs = {}
    for broker_id in (0, 1):
        epochs[broker_id] = (await rig.driver.run(BROKER_REGISTRATION, registration(broker_id))).broker_epoch
        await rig.driver.run(BROKER_HEARTBEAT, beat(broker_id, epochs))
        if broker_id == 0:
            await rig.driver.run(CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", 6, 1),)))
    return rig, epochs


def beat(broker_id: int, epochs: dict[int, int], **requests: bool) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id, epochs[broker_id], current_metadata_offset=10_000, **requests)


@pytest.mark.usefixtures("small_parts")
async def test_other_requests_are_answered_between_parts() -> None:
    rig, epochs = await leading_rig()
    order: list[str] = []

    async def ask(name: str, request: BrokerHeartbeatRequest) -> bool:
        answer = await rig.driver.run(BROKER_HEARTBEAT, request)
        assert answer.error_code is ErrorCode.NONE
        order.append(name)
        return answer.is_fenced

    fenced, of_another, again = await asyncio.gather(
        ask("fenced", beat(0, epochs, want_fence=True)),
        ask("another", beat(1, epochs)),
        ask("again", beat(0, epochs, want_fence=True)),
    )
    assert (fenced, of_another, again) == (True, False, True)
    assert order == ["another", "fenced", "again"]
    fencings = [one for one in rig.log.records() if isinstance(one, BrokerRegistrationChangeRecord) and one.fenced == 1]
    assert len(fencings) == 1, "requests during the change wait for its end"
    rig.driver.close()


@pytest.mark.usefixtures("small_parts")
async def test_an_operation_continues_after_its_request_is_cancelled() -> None:
    rig, epochs = await leading_rig()
    asked = asyncio.ensure_future(rig.driver.run(BROKER_HEARTBEAT, beat(0, epochs, want_fence=True)))
    await asyncio.sleep(0)
    asked.cancel()
    answer = await rig.driver.run(BROKER_HEARTBEAT, beat(0, epochs, want_fence=True))
    assert answer.is_fenced
    assert isinstance(rig.log.records()[-1], BrokerRegistrationChangeRecord)
    rig.driver.close()


@pytest.mark.usefixtures("small_parts")
async def test_an_epoch_that_is_lost_between_two_parts() -> None:
    rig, epochs = await leading_rig()
    asked = asyncio.ensure_future(rig.driver.run(BROKER_HEARTBEAT, beat(0, epochs, want_fence=True)))
    await asyncio.sleep(0)
    end = rig.log.end
    rig.driver.on_not_leader()
    assert (await asked).error_code is ErrorCode.NOT_CONTROLLER
    await settle()
    assert rig.log.end == end
    assert rig.log.resigned == []


@pytest.mark.usefixtures("small_parts")
async def test_a_fault_between_two_parts_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, epochs = await leading_rig()
    asked = asyncio.ensure_future(rig.driver.run(BROKER_HEARTBEAT, beat(0, epochs, want_fence=True)))
    await asyncio.sleep(0)

    def break_down(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(elections.ElectionManager, "part_for_broker", break_down)
    assert (await asked).error_code is ErrorCode.NOT_CONTROLLER
    assert rig.log.resigned == [3]


@pytest.mark.usefixtures("small_parts")
@simulated
async def test_a_broker_that_is_being_fenced_registers_afterwards() -> None:
    rig, epochs = await leading_rig()
    registering: list[asyncio.Future[BrokerRegistrationResponse]] = []
    propose = rig.log.propose

    def propose_and_register(records: Sequence[bytes], epoch: int) -> int:
        is_part = any(isinstance(decode(record), PartitionChangeRecord) for record in records)
        if is_part and not registering:
            asking = rig.driver.run(BROKER_REGISTRATION, registration(0, incarnation=7))
            registering.append(asyncio.ensure_future(asking))
        return propose(records, epoch)

    rig.log.propose = propose_and_register  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        while not registering:
            await asyncio.sleep(0.1)
            assert not (await rig.driver.run(BROKER_HEARTBEAT, beat(1, epochs))).is_fenced
        answer = await registering[0]
    assert answer.error_code is ErrorCode.NONE
    kinds = [type(record) for record in rig.log.records()]
    assert kinds[-2:] == [BrokerRegistrationChangeRecord, RegisterBrokerRecord]
    assert rig.log.resigned == []
    rig.driver.close()


@pytest.mark.usefixtures("small_parts")
def test_a_broker_whose_session_ends_while_it_registers_is_not_fenced_meanwhile() -> None:
    cluster = filled()
    cluster.pass_silently(10_000)
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    start = len(cluster.log)
    assert cluster.register(1).error_code is ErrorCode.NONE
    changes = [one for one in cluster.records(start) if isinstance(one, BrokerRegistrationChangeRecord)]
    assert changes == []
