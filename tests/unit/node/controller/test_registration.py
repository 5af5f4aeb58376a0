"""The end of a broker's exchange with the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support import simulated_time
from tests.support.controller_channel import ChannelByName

from klamm.broker.lifecycle import BrokerState
from klamm.node.controller.registration import Registration, lifecycle
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

REQUEST = BrokerRegistrationRequest(1, "4L6g3nShT-eMCtK--X86sw", bytes(16), (), ())


class Refusing(ChannelByName):
    """A controller that registers no broker."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    async def broker_registration(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(self._code)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        raise AssertionError("an unregistered broker does not beat")


async def fault_of(code: ErrorCode, foreign: Callable[[], str | None] = lambda: None) -> str:
    """The reason for which a broker gives up after these responses."""
    fault: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    registration = Registration(
        lifecycle(2000, 9000, 150, 30_000),
        Refusing(code),
        lambda: REQUEST,
        lambda: -1,
        fault.set_result,
        ask_timeout_ms=2000,
        foreign_cluster=foreign,
    )
    registration.start()
    async with asyncio.timeout(30):
        return str(await fault)


async def test_a_controller_of_another_cluster_is_named(caplog: pytest.LogCaptureFixture) -> None:
    text = await fault_of(ErrorCode.INCONSISTENT_CLUSTER_ID)
    why = "the active controller is of another cluster (INCONSISTENT_CLUSTER_ID): this broker was formatted for "
    assert f"{why}cluster.id {REQUEST.cluster_id}" in text
    assert [why in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True]


async def test_the_reason_is_what_is_known_of_the_controllers() -> None:
    assert (await fault_of(ErrorCode.REQUEST_TIMED_OUT)).endswith(
        "check whether the controllers run and have elected a leader"
    )
    assert (await fault_of(ErrorCode.REQUEST_TIMED_OUT, lambda: "they are others")).endswith(": they are others")


class Leaving(ChannelByName):
    """A controller that registers a broker, unfences it, and then does not respond, as if its host had crashed."""

    async def broker_registration(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(broker_epoch=7)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if request.want_shut_down:
            await asyncio.Event().wait()
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


async def shut_down(is_majority_down: Callable[[], bool]) -> float:
    """How long a running broker that stops waits for a response, at most 300 s."""
    loop = asyncio.get_running_loop()
    registration = Registration(
        lifecycle(2000, 9000, 60_000, 30_000),
        Leaving(),
        lambda: REQUEST,
        lambda: 5,
        lambda error: pytest.fail(str(error)),
        ask_timeout_ms=2000,
        is_majority_down=is_majority_down,
    )
    registration.start()
    registration.ready()
    await registration.running.wait()
    began = loop.time()
    await registration.shut_down(300)
    assert registration.state is BrokerState.SHUTTING_DOWN
    return loop.time() - began


def test_a_silent_controller_is_waited_for_as_long_as_apache_kafka_does(caplog: pytest.LogCaptureFixture) -> None:
    assert simulated_time.run(shut_down(lambda: False)) == pytest.approx(300, rel=1e-3)
    assert caplog.messages == [
        "the controller did not permit the shutdown within 300 s; the broker stops without moving leaders"
    ]


def test_controllers_known_to_have_crashed_are_not_waited_for() -> None:
    assert simulated_time.run(shut_down(lambda: True)) == 0

    async def seen_later() -> float:
        until = asyncio.get_running_loop().time() + 2.5
        return await shut_down(lambda: asyncio.get_running_loop().time() > until)

    assert simulated_time.run(seen_later()) == pytest.approx(2.5, abs=0.2)


def test_a_late_heartbeat_detects_a_pause() -> None:
    async def pauses_of(pause_s: float) -> list[int]:
        loop, pauses = asyncio.get_running_loop(), asyncio.Queue[int]()
        assert isinstance(loop, simulated_time.SimulatedTimeLoop)
        registration = Registration(
            lifecycle(2_000, 9_000, 60_000, 30_000),
            Leaving(),
            lambda: REQUEST,
            lambda: 5,
            lambda error: pytest.fail(str(error)),
            ask_timeout_ms=2000,
            on_pause=pauses.put_nowait,
        )
        registration.start()
        await registration.registered.wait()
        registration.ready()
        await registration.running.wait()
        loop.call_later(1.5, loop.stop_for, pause_s)
        await asyncio.sleep(20)
        registration.stop()
        return [pauses.get_nowait() for _ in range(pauses.qsize())]

    assert simulated_time.run(pauses_of(1)) == []
    [late_ms] = simulated_time.run(pauses_of(10))
    assert 9_000 <= late_ms <= 10_000


class Failing(Leaving):
    """A controller channel with a bug, which the heartbeats with these numbers meet."""

    def __init__(self, *numbers: int) -> None:
        self._numbers, self._count = numbers, 0
        self.sixth = asyncio.Event()

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self._count += 1
        if self._count == 6:
            self.sixth.set()
        if self._count in self._numbers:
            raise RuntimeError("injected")
        return await super().broker_heartbeat(request)


def test_an_exception_is_logged_again_after_an_exchange_succeeded(caplog: pytest.LogCaptureFixture) -> None:
    async def beat() -> None:
        channel = Failing(1, 2, 4)
        registration = Registration(
            lifecycle(2_000, 9_000, 60_000, 30_000),
            channel,
            lambda: REQUEST,
            lambda: 5,
            lambda error: pytest.fail(str(error)),
            ask_timeout_ms=2000,
        )
        registration.start()
        registration.ready()
        await channel.sixth.wait()
        registration.stop()

    simulated_time.run(beat())
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True, True]
