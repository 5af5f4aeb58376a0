"""Requests to the active controller, in this process or elsewhere, retried on another one until their timeout."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.client import ClientError, ConnectRefusedError
from klamm.client.peer import Versions
from klamm.config import sources
from klamm.controller.operations.nodes import BROKER_HEARTBEAT
from klamm.controller.operations.operation import Operation
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.node.controller.active_controller import ActiveController
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm.raft.voters.voter_set import Endpoint

BEAT = BrokerHeartbeatRequest(1, 5, 7)
BEATEN = BrokerHeartbeatResponse(is_caught_up=True)
NOT_CONTROLLER = BrokerHeartbeatResponse(ErrorCode.NOT_CONTROLLER)


class Quorum:
    """What raft reports, one state per query; the last one stays."""

    def __init__(self, *leaders: int | None) -> None:
        self._leaders = list(leaders)
        self.leader_endpoints: tuple[Endpoint, ...] = ()

    @property
    def leader_id(self) -> int | None:
        leader = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        self.leader_endpoints = () if leader is None else (Endpoint("CONTROLLER", "host", 9000 + leader),)
        return leader


class Local:
    """A controller in this process with these responses."""

    def __init__(self, *answers: Any, epoch: int | None = 1) -> None:
        self.epoch = epoch
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def run(self, operation: Operation[Any, Any], request: Any) -> Any:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if answer.error_code is ErrorCode.NOT_CONTROLLER:
            self.epoch = None
        return answer


class Remote:
    """A client of other nodes with these responses."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.addresses: list[tuple[str, int]] = []
        self.versions: dict[tuple[str, int], Versions] = {}

    def peer(self, address: tuple[str, int]) -> Any:
        return SimpleNamespace(versions=self.versions.get(address))

    async def ask(self, address: tuple[str, int], request: Any, *_: object) -> Any:
        self.addresses.append(address)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def controller(quorum: Quorum, local: Local | None = None, remote: Remote | None = None) -> ActiveController:
    config = sources.load()
    made: Any = ActiveController(config, local, quorum)  # type: ignore[arg-type]
    made._client = remote
    found: ActiveController = made
    return found


async def test_a_local_controller_is_called() -> None:
    local = Local(BEATEN)
    assert await controller(Quorum(1), local).ask(BROKER_HEARTBEAT, BEAT) == BEATEN
    assert local.asked == [BEAT]


async def test_a_remote_controller_is_found_by_raft() -> None:
    remote = Remote(BEATEN)
    assert await controller(Quorum(3), remote=remote).ask(BROKER_HEARTBEAT, BEAT) == BEATEN
    assert remote.addresses == [("host", 9003)]


@pytest.mark.parametrize("first", [NOT_CONTROLLER, ClientError("broken"), ConnectRefusedError("nobody")])
async def test_the_next_controller_is_asked_after_not_controller(first: object) -> None:
    remote = Remote(first, BEATEN)
    asking = controller(Quorum(3, 3, None, 4), remote=remote)
    assert await asking.ask(BROKER_HEARTBEAT, BEAT) == BEATEN
    assert len(remote.addresses) == 2


async def test_a_local_controller_that_loses_its_epoch_is_replaced_by_the_next() -> None:
    remote = Remote(BEATEN)
    assert await controller(Quorum(None, 2), Local(NOT_CONTROLLER), remote).ask(BROKER_HEARTBEAT, BEAT) == BEATEN
    assert remote.addresses == [("host", 9002)]


async def test_topics_rejected_with_not_controller_are_retried() -> None:
    def answer(code: ErrorCode) -> CreateTopicsResponse:
        return CreateTopicsResponse((CreatableTopicResult("t", error_code=code),))

    remote = Remote(answer(ErrorCode.NOT_CONTROLLER), answer(ErrorCode.TOPIC_ALREADY_EXISTS))
    request = CreateTopicsRequest((CreatableTopic("t", 1, 1),))
    given = await controller(Quorum(2), remote=remote).ask(CREATE_TOPICS, request)
    assert given == answer(ErrorCode.TOPIC_ALREADY_EXISTS)


async def test_a_silent_former_leader_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.node.controller.active_controller.LAST_WORD_MS", 1)

    class Silent(Remote):
        async def ask(self, address: tuple[str, int], request: Any, *_: object) -> Any:
            if address == ("host", 9003):
                await asyncio.Event().wait()
            return await super().ask(address, request)

    remote = Silent(BEATEN)
    # Two queries to find the first one, and three to learn that there is another.
    asking = controller(Quorum(3, 3, 3, 3, 4), remote=remote)
    async with asyncio.timeout(30):
        assert await asking.ask(BROKER_HEARTBEAT, BEAT) == BEATEN
    assert remote.addresses == [("host", 9004)]


@pytest.mark.parametrize(("leaders", "answers"), [([None], [BEATEN]), ([2], [NOT_CONTROLLER]), ([1], [BEATEN])])
async def test_a_request_times_out(leaders: Sequence[int | None], answers: Sequence[object]) -> None:
    """No leader; a node that wrongly counts as the leader; this node, which is not active yet."""
    asking = controller(Quorum(*leaders), Local(epoch=None), Remote(*answers))
    answer = await asking.ask(BROKER_HEARTBEAT, BEAT, 100)
    assert answer == BrokerHeartbeatResponse(ErrorCode.REQUEST_TIMED_OUT)


async def test_versions_are_reported_when_the_active_controller_changes() -> None:
    remote, reported = Remote(NOT_CONTROLLER, BEATEN, BEATEN), []
    remote.versions = {("host", 9003): {19: (2, 5)}}
    local = Local(BEATEN, epoch=None)
    asking = controller(Quorum(3, 3, 4, 4, 3), local, remote)
    asking.follow_versions(reported.append)
    await asking.ask(BROKER_HEARTBEAT, BEAT)
    await asking.ask(BROKER_HEARTBEAT, BEAT)
    assert reported == [{19: (2, 5)}, None, {19: (2, 5)}]
    local.epoch = 5
    await asking.ask(BROKER_HEARTBEAT, BEAT)
    assert reported[3:] == [None]


async def test_versions_of_a_new_connection_are_reported_at_once() -> None:
    remote, reported = Remote(BEATEN), []
    asking = controller(Quorum(3), remote=remote)
    asking.follow_versions(reported.append)
    await asking.ask(BROKER_HEARTBEAT, BEAT)
    assert reported == []
    for versions in ({19: (2, 5)}, {19: (2, 7)}):
        remote.versions = {("host", 9003): versions}
        asking._report_versions()
        asking._report_versions()
    remote.versions = {}
    asking._report_versions()
    assert reported == [{19: (2, 5)}, {19: (2, 7)}, None]


async def test_a_request_that_watched_the_leader_is_freed_without_the_garbage_collector() -> None:
    class Waiting:
        end: Callable[[], None]

        def ask_again(self) -> None:
            raise AssertionError("the leader stays")

    waiting = Waiting()
    waiting.end = controller(Quorum(3)).watch(("host", 9003), waiting.ask_again)
    freed = weakref.ref(waiting)
    waiting.end()
    del waiting
    assert freed() is None
