"""A node's requests to the controller continue after an unexpected exception; each cause is logged once."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.controller_channel import ChannelByName

from klamm._engine.metadata import Image
from klamm.broker.lifecycle import BrokerState
from klamm.node.controller import assignments, controller_registration
from klamm.node.controller.assignments import Assignments
from klamm.node.controller.controller_registration import ControllerRegistration
from klamm.node.controller.registration import Registration, lifecycle
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, encode
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

REQUEST = BrokerRegistrationRequest(1, "4L6g3nShT-eMCtK--X86sw", bytes(16), (), ())


class Failing(ChannelByName):
    """A controller whose channel raises twice per request, and then responds."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self.done = asyncio.Event()

    def _fail_twice(self, name: str) -> None:
        self._asked[name] = self._asked.get(name, 0) + 1
        if self._asked[name] <= 2:
            raise ZeroDivisionError(name)

    async def broker_registration(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        self._fail_twice("registration")
        return BrokerRegistrationResponse(broker_epoch=7)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self._fail_twice("heartbeat")
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self._fail_twice("assignment")
        return AssignReplicasToDirsResponse()

    async def controller_registration(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        self._fail_twice("controller")
        self.done.set()
        return ControllerRegistrationResponse()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(controller_registration, "FIRST_PAUSE_S", 0.001)


def causes(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (record.exc_info for record in caplog.records if record.levelno >= logging.ERROR)
    return [str(info[1]) for info in found if info]


async def test_a_broker_registers_and_runs_after_exceptions(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception] = []
    made = Registration(
        lifecycle(20, 90, 30_000, 30_000),
        Failing(),
        lambda: REQUEST,
        lambda: -1,
        faults.append,
        ask_timeout_ms=2000,
    )
    made.start()
    async with asyncio.timeout(30):
        await made.registered.wait()
        made.ready()
        await made.running.wait()
    assert made.state is BrokerState.RUNNING
    assert causes(caplog) == ["registration", "heartbeat"]
    assert faults == []
    made.stop()


async def test_directories_are_sent_after_exceptions() -> None:
    sender = Assignments(1, Failing(), lambda: 7)
    sender.add([(b"d" * 16, b"t" * 16, 0)])
    async with asyncio.timeout(30):
        await sender.start()
    assert sender._pending == {}
    sender.close()


async def test_a_controller_registers_after_exceptions() -> None:
    failing = Failing()
    level = encode(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)
    request = ControllerRegistrationRequest(1, bytes(16), (), ())
    made = ControllerRegistration(request, failing)
    made.on_published(Image().apply([level]))
    async with asyncio.timeout(30):
        await failing.done.wait()
    made.close()
