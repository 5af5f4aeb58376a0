"""Directory assignments: sent once, retried after a failure, and some not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.controller_channel import ChannelByName

from klamm.broker.lifecycle import BrokerLifecycle
from klamm.node.controller import assignments
from klamm.node.controller.assignments import Assignments
from klamm.node.controller.registration import Registration
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

Assignment = tuple[bytes, bytes, int]
TOPIC, ONE, TWO = b"t" * 16, b"1" * 16, b"2" * 16


class Controller(ChannelByName):
    """Responds with these codes, then without errors."""

    def __init__(self, *codes: ErrorCode) -> None:
        self._codes: Iterator[ErrorCode] = iter(codes)
        self.asked: list[AssignReplicasToDirsRequest] = []

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self.asked.append(request)
        await asyncio.sleep(0)
        return AssignReplicasToDirsResponse(next(self._codes, ErrorCode.NONE))


def test_everything_known_at_the_registration_is_sent_before_the_broker_continues() -> None:
    async def run() -> None:
        controller = Controller()
        sender = Assignments(1, controller, lambda: 7)
        sender.add([(ONE, TOPIC, 0)])
        sender.add([(TWO, TOPIC, 1), (TWO, TOPIC, 0)])
        assert controller.asked == []
        await sender.start()
        (request,) = controller.asked
        assert request == AssignReplicasToDirsRequest(1, 7, ((TWO, TOPIC, 0), (TWO, TOPIC, 1)))

    asyncio.run(run())


def test_assignments_are_retried_and_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        controller = Controller(ErrorCode.NOT_CONTROLLER)
        sender = Assignments(1, controller, lambda: 7)
        sender.add([(ONE, TOPIC, index) for index in range(3)])
        await sender.start()
        assert [[index for *_, index in asked.assignments] for asked in controller.asked] == [[0, 1], [0, 1], [2]]

    monkeypatch.setattr(assignments, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(assignments, "MAX_PER_REQUEST", 2)
    asyncio.run(run())


def test_an_unreported_failed_directory_stops_the_node() -> None:
    class Deaf(ChannelByName):
        async def broker_registration(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
            raise AssertionError("it is registered")

        async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
            raise AssertionError("nothing is sent")

    async def run() -> Exception:
        fault: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        lifecycle = BrokerLifecycle(2_000, 9_000, 60_000, 1, lambda: 0.5)

        def request() -> BrokerRegistrationRequest:
            raise AssertionError("not asked")

        registration = Registration(lifecycle, Deaf(), request, lambda: 0, fault.set_result, ask_timeout_ms=1)
        registration.on_log_dir_failed(ONE)
        return await asyncio.wait_for(fault, 30)

    assert "log.dir.failure.timeout.ms" in str(asyncio.run(run()))
