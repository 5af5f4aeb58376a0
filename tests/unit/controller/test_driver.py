"""The driver: appends, when responses are sent, and what happens to them when leadership ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.simulated_time import simulated
from tests.unit.controller.cluster import CLUSTER_ID, LATEST, bootstrap, registration, uuid
from tests.unit.controller.test_client_quotas import entry

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller, appends
from klamm.controller.decisions import Decisions
from klamm.controller.driver import ControllerDriver
from klamm.controller.effects import Append
from klamm.controller.nodes import controllers
from klamm.controller.operations.client_quotas import ALTER_CLIENT_QUOTAS
from klamm.controller.operations.configs import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from klamm.controller.operations.features import UPDATE_FEATURES
from klamm.controller.operations.nodes import BROKER_HEARTBEAT, BROKER_REGISTRATION, CONTROLLER_REGISTRATION
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.controller.result import MAX_BATCH_SIZE, MAX_RECORDS_PER_BATCH, Result
from klamm.controller.settings import ControllerSettings
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import MetadataRecord, NoOpRecord, TopicRecord, decode, encode
from klamm.protocol.messages.client_quotas import AlterClientQuotasRequest
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.feature_updates import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    ControllerRegistrationRequest,
    Listener,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.resource_types import ResourceType
from klamm.raft.ports import NotLeaderError


class Log:
    """A quorum of one voter whose commits are triggered by the test."""

    def __init__(self) -> None:
        self.batches: list[Sequence[bytes]] = []
        self.end = 0
        self.committed = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.resigned: list[int] = []
        self.on_resigned: Callable[[], None] = lambda: None
        self.is_leader = True

    def propose(self, records: Sequence[bytes], epoch: int) -> int:
        if not self.is_leader:
            raise NotLeaderError("not the leader")
        self.batches.append(list(records))
        self.end += len(records)
        return self.end - 1

    def upgrade_kraft_version(self, epoch: int) -> None:
        self.end += 2

    voter_ids = frozenset({0})

    def kraft_upgrade_refusal(self) -> None:
        return None

    is_followed = True

    def wait_committed(self, offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((offset, future))
        self.commit(self.committed)
        return future

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)
        self.on_resigned()

    def commit(self, end: int) -> None:
        """Commit everything below `end`."""
        self.committed = end
        for offset, future in list(self.waiting):
            if offset < end and not future.done():
                future.set_result(None)

    def lose(self) -> None:
        self.is_leader = False
        for _, future in self.waiting:
            if not future.done():
                future.set_exception(NotLeaderError("leadership ended"))

    def records(self) -> list[MetadataRecord]:
        return [decode(record) for batch in self.batches for record in batch]


class Rig:
    def __init__(self) -> None:
        self.log = Log()
        settings = ControllerSettings(0, CLUSTER_ID)
        self.controller = Controller(settings, lambda count: bytes(range(count % 256)) or b"")
        self.driver = ControllerDriver(self.controller, self.log)
        self.log.on_resigned = self.driver.on_not_leader

    def lead(self) -> None:
        self.driver.on_leader(3, Image(), 0, bootstrap(LATEST), 0)

    async def with_broker(self) -> None:
        self.lead()
        self.log.commit(100)
        answer = await self.driver.run(BROKER_REGISTRATION, registration(0))
        assert answer.error_code is ErrorCode.NONE
        beat = BrokerHeartbeatRequest(0, answer.broker_epoch, current_metadata_offset=self.log.end)
        assert not (await self.driver.run(BROKER_HEARTBEAT, beat)).is_fenced


def create(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest((CreatableTopic(name, 1, 1),))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_hosts_are_resolved_before_the_decision() -> None:
    rig = Rig()
    rig.lead()
    rig.log.commit(100)
    names = "localhost", "x" * 64, "10.0.0.1"  # no host has a label of 64 letters
    entries = tuple(entry({"ip": name}, connection_creation_rate=5.0) for name in names)
    answer = await rig.driver.run(ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries, False))
    codes = [result.error_code for result in answer.entries]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_an_answer_waits_for_its_records() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.log.commit(rig.log.end)
    task = asyncio.ensure_future(rig.driver.run(CREATE_TOPICS, create("foo")))
    await settle()
    assert not task.done()
    rig.log.commit(rig.log.end - 1)
    await settle()
    assert not task.done()
    rig.log.commit(rig.log.end)
    (result,) = (await task).topics
    assert result.error_code is ErrorCode.NONE
    rig.driver.close()


async def test_each_request_uses_the_current_voters() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.log.commit(100)
    change = AlterableConfig("background.threads", "5", ConfigOperation.SET)
    of_controller_7 = (AlterConfigsResource(ResourceType.BROKER, "7", (change,)),)
    asks = (
        lambda: rig.driver.run(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(of_controller_7)),
        lambda: rig.driver.run(ALTER_CONFIGS, AlterConfigsRequest(of_controller_7)),
    )
    for ask in asks:
        for voters, expected in (
            ({0}, ErrorCode.BROKER_ID_NOT_REGISTERED),
            ({0, 7}, ErrorCode.NONE),
            ({0}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            rig.log.voter_ids = frozenset(voters)
            (answer,) = (await ask()).responses
            assert answer.error_code is expected
    update = UpdateFeaturesRequest((FeatureUpdateKey("group.version", 1, upgrade_type=UpgradeType.UPGRADE),))
    rig.log.voter_ids = frozenset({0, 7})
    assert "controller 7 has not registered" in ((await rig.driver.run(UPDATE_FEATURES, update)).error_message or "")
    rig.log.voter_ids = frozenset({0})
    assert (await rig.driver.run(UPDATE_FEATURES, update)).error_code is ErrorCode.NONE
    rig.driver.close()


async def test_an_answer_without_records_waits_for_those_before_it() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.log.commit(0)
    refused = asyncio.ensure_future(rig.driver.run(CREATE_TOPICS, create("a b")))
    await settle()
    assert not refused.done(), "what it was read from is not committed"
    rig.log.commit(rig.log.end)
    assert (await refused).topics[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    rig.driver.close()


async def test_a_lost_epoch_answers_not_controller_and_reverts_its_records() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.log.commit(0)
    task = asyncio.ensure_future(rig.driver.run(CREATE_TOPICS, create("foo")))
    await settle()
    rig.log.lose()
    rig.driver.on_not_leader()
    assert (await task).topics[0].error_code is ErrorCode.NOT_CONTROLLER
    assert not rig.controller.is_active
    later = await rig.driver.run(CREATE_TOPICS, create("bar"))
    assert later.topics[0].error_code is ErrorCode.NOT_CONTROLLER
    assert rig.log.resigned == []


async def test_a_rejected_append_changes_nothing() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.log.is_leader = False
    answer = await rig.driver.run(BROKER_REGISTRATION, registration(5, incarnation=5))
    assert answer.error_code is ErrorCode.NOT_CONTROLLER
    rig.log.is_leader = True
    answer = await rig.driver.run(BROKER_REGISTRATION, registration(6, incarnation=6, log_dirs=(bytes([1] * 16),)))
    assert answer.broker_epoch == rig.log.end - 1
    rig.driver.close()


async def test_a_fault_of_ours_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    await rig.with_broker()

    def broken(*args: Any) -> Any:
        raise AssertionError("a bug")

    monkeypatch.setattr(Decisions, "create_topics", broken)
    answer = await rig.driver.run(CREATE_TOPICS, create("foo"))
    assert answer.topics[0].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.log.resigned == [3]
    rig.driver.close()


@simulated
async def test_periodic_tasks_write_and_set_the_timer_again() -> None:
    rig = Rig()
    rig.lead()
    end = rig.log.end
    assert rig.controller.deadline_ms == 500
    await asyncio.sleep(0.6)
    assert rig.log.records()[end:] == [NoOpRecord()]
    assert rig.controller.deadline_ms == 1_000
    rig.log.is_leader = False
    await asyncio.sleep(0.5)
    assert rig.log.resigned == []
    assert rig.log.records()[end:] == [NoOpRecord()]
    rig.driver.on_not_leader()
    assert rig.controller.deadline_ms is None
    rig.driver.close()


async def test_a_timer_that_cannot_be_set_resigns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise no broker would be fenced any more, without any message."""
    rig = Rig()

    def fail(controller: Controller) -> int:
        raise ZeroDivisionError("injected")

    with monkeypatch.context() as broken:
        broken.setattr(Controller, "deadline_ms", property(fail))
        rig.lead()
    assert rig.log.resigned == [3]
    assert "the clock failed; resigning from epoch 3" in caplog.text
    rig.driver.on_not_leader()
    rig.driver.close()


async def test_a_new_epoch_starts_from_the_committed_state() -> None:
    rig = Rig()
    await rig.with_broker()
    rig.driver.on_not_leader()
    rig.driver.on_leader(4, Image().apply(bootstrap(LATEST)), 50, [], 0)
    rig.log.end = 50
    answer = await rig.driver.run(BROKER_REGISTRATION, registration(0))
    assert answer.broker_epoch == 50, "the registration of epoch 3 was never committed"
    rig.driver.close()


def batches_of(records: Sequence[bytes], *, is_atomic: bool) -> list[Sequence[bytes]]:
    effects = appends(Result(None, records, is_atomic=is_atomic))
    return [effect.records for effect in effects if isinstance(effect, Append)]


def test_a_long_result_is_written_in_batches_unless_it_is_atomic() -> None:
    record = encode(NoOpRecord(), 0)
    many = [record] * (2 * MAX_RECORDS_PER_BATCH + 1)
    sizes = [len(batch) for batch in batches_of(many, is_atomic=False)]
    assert sizes == [MAX_RECORDS_PER_BATCH, MAX_RECORDS_PER_BATCH, 1]
    large = encode(TopicRecord(name="x" * 30_000, topic_id=bytes(16)), 0)
    split = batches_of([large] * 600, is_atomic=False)
    assert sum(map(len, split)) == 600
    assert all(sum(map(len, batch)) <= MAX_BATCH_SIZE for batch in split)
    assert batches_of(many[:3], is_atomic=True) == [many[:3]]
    assert batches_of([], is_atomic=True) == batches_of([], is_atomic=False) == []


async def test_kraft_version_is_upgraded_before_the_awaited_record() -> None:
    rig = Rig()
    await rig.with_broker()
    end = rig.log.end
    rig.log.commit(1_000)
    update = UpdateFeaturesRequest((FeatureUpdateKey("kraft.version", 1, UpgradeType.UPGRADE),))
    assert (await rig.driver.run(UPDATE_FEATURES, update)).error_code is ErrorCode.NONE
    assert (rig.log.end, rig.log.records()[-1]) == (end + 3, NoOpRecord())
    assert (await rig.driver.run(UPDATE_FEATURES, update)).error_code is ErrorCode.NONE
    assert rig.log.end == end + 3
    rig.driver.close()


async def test_an_expired_request_is_not_started() -> None:
    rig = Rig()
    await rig.with_broker()
    end = rig.log.end
    for timeout_ms in (0, -1):
        request = replace(create("late"), timeout_ms=timeout_ms)
        assert (await rig.driver.run(CREATE_TOPICS, request)).topics[0].error_code is ErrorCode.REQUEST_TIMED_OUT
    assert (rig.log.end, rig.log.resigned) == (end, [])
    rig.driver.close()


async def test_records_that_cannot_be_applied_do_not_reach_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every node would fail to apply them at each start."""
    monkeypatch.setattr(controllers, "check_listeners", lambda listeners: None)
    rig = Rig()
    await rig.with_broker()
    before = rig.log.end
    request = ControllerRegistrationRequest(7, uuid(7), (Listener("", "host", 9093),), ())
    answer = await rig.driver.run(CONTROLLER_REGISTRATION, request)
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.log.end == before
    assert rig.log.resigned == [3]
