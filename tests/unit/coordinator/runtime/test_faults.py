"""An exception in a shard, its log or a callback fails only that, is logged once, and the shard is reloaded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support.simulated_time import simulated
from tests.unit.coordinator.memory_log import MemoryLog, appended

from klamm.coordinator.runtime.hosted_shard import HostedShard, LoadState
from klamm.coordinator.runtime.log import LogRecord
from klamm.coordinator.runtime.shard import Shard
from klamm.protocol.errors import ErrorCode

from .subjects import PARTITIONS, Counters, Groups, Subject

NONE = ErrorCode.NONE
INJECTED = "injected for the test"

subjects = pytest.mark.parametrize("kind", [Counters, Groups])


class InjectedError(Exception):
    """What a test injects."""


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> asyncio.Event:
    """Make the next call raise; the event is set when it has."""
    found, raised = vars(owner)[name], asyncio.Event()

    def inject(*args: Any, **kwargs: Any) -> Any:
        if not raised.is_set():
            raised.set()
            raise InjectedError(INJECTED)
        return (found.fget if isinstance(found, property) else found)(*args, **kwargs)

    monkeypatch.setattr(owner, name, property(inject) if isinstance(found, property) else inject)
    return raised


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


async def started(kind: type[Subject]) -> Subject:
    """All partitions hold 1."""
    subject = kind(MemoryLog())
    await subject.started()
    for partition in range(PARTITIONS):
        assert await subject.write(1, partition) is NONE
    return subject


async def assert_it_serves(subject: Subject, *, holds: int = 1) -> None:
    """Everything works again, and committed state is intact."""
    async with asyncio.timeout(3_600):
        await subject.runtime.loaded()
        while any(one.state is LoadState.FAILED for one in subject.runtime.shards.all()):
            await subject.runtime.load_changed()
        assert await subject.read(newest=True) == (NONE, holds)
        for partition in range(PARTITIONS):
            assert await subject.write(8, partition) is NONE
            assert await subject.value(partition) == 8
    again = type(subject)(subject.log)
    await again.started()
    assert await again.value() == 8, "the log says the same"


# How each method of a shard is called. A new one has to be added here.
EVENTS = {
    "replay": lambda subject: subject.runtime.on_elected(0, 2),
    "on_loaded": lambda subject: subject.runtime.on_elected(0, 2),
    "on_unloaded": lambda subject: subject.runtime.on_elected(0, 2),
    "on_timer": lambda subject: subject.set_timer(1),
    "on_pause": lambda subject: subject.runtime.on_pause(60_000),
}
APART = {"rollback", "pipeline", "timers"}
"""Tested below, or no method."""


def test_every_method_of_a_shard_is_listed() -> None:
    assert {name for name in vars(Shard) if not name.startswith("_")} == EVENTS.keys() | APART


@subjects
@pytest.mark.parametrize("name", sorted(EVENTS))
@simulated
async def test_an_event_that_fails_a_shard(
    kind: type[Subject], name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    await asyncio.sleep(120)
    raised = fail_once(monkeypatch, subject.shard_class, name)
    EVENTS[name](subject)
    async with asyncio.timeout(3_600):
        await raised.wait()
    [error] = errors(caplog)
    assert INJECTED in caplog.text
    assert error.exc_info
    await assert_it_serves(subject)
    assert len(errors(caplog)) == 1


@subjects
@simulated
async def test_a_request_that_fails_a_shard(
    kind: type[Subject], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    waiting, elsewhere = subject.write(2), subject.write(3, 1)
    await appended(subject.log, 2)
    fail_once(monkeypatch, subject.shard_class, subject.request)
    assert await subject.write(4) is ErrorCode.UNKNOWN_SERVER_ERROR, "the failed request is answered"
    assert await waiting is ErrorCode.NOT_COORDINATOR, "the waiting client asks again"
    subject.log.finish_all()
    assert await elsewhere is NONE, "another shard still answers"
    [error] = errors(caplog)
    assert INJECTED in error.message
    assert error.exc_info
    assert subject.runtime.counts.faults == 1
    await assert_it_serves(subject, holds=2)


@subjects
@simulated
async def test_a_failing_rollback_is_replaced_by_a_reload(
    kind: type[Subject], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answer = subject.write(2)
    await appended(subject.log)
    fail_once(monkeypatch, subject.shard_class, "rollback")
    subject.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert await answer is ErrorCode.NOT_COORDINATOR
    subject.log.finish_all()
    assert len(errors(caplog)) == 1
    await assert_it_serves(subject)


@subjects
@pytest.mark.parametrize("name", ["take_append", "on_append_done", "deadline_ms"])
@simulated
async def test_a_step_of_a_write_that_fails(
    kind: type[Subject], name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    fail_once(monkeypatch, HostedShard, name)
    assert await subject.write(2) is ErrorCode.NOT_COORDINATOR
    assert len(errors(caplog)) == 1
    was_appended = len(subject.log.partitions[0]) > 1
    await assert_it_serves(subject, holds=2 if was_appended else 1)


@subjects
@pytest.mark.parametrize("name", ["append", "open", "load"])
@simulated
async def test_a_log_that_fails(
    kind: type[Subject], name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    raised = fail_once(monkeypatch, MemoryLog, name)
    if name == "append":
        assert await subject.write(2) is ErrorCode.NOT_COORDINATOR
    else:
        subject.runtime.on_elected(0, 2)
    async with asyncio.timeout(3_600):
        await raised.wait()
    await assert_it_serves(subject)
    assert len(errors(caplog)) == 1


@subjects
@simulated
async def test_an_append_of_several_shards_that_fails_reloads_all_of_them(
    kind: type[Subject], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    fail_once(monkeypatch, MemoryLog, "append")
    answers = [subject.write(2, partition) for partition in range(PARTITIONS)]
    assert await asyncio.gather(*answers) == [ErrorCode.NOT_COORDINATOR] * PARTITIONS
    await subject.runtime.loaded()
    assert len(errors(caplog)) == PARTITIONS
    await assert_it_serves(subject)


@subjects
@simulated
async def test_an_event_for_all_that_fails_a_shard_reaches_it_again(
    kind: type[Subject], caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    reached: list[object] = []

    def event(shard: object, now_ms: int) -> list[object]:
        reached.append(shard)
        if len(reached) == 1:
            raise InjectedError(INJECTED)
        return []

    subject.runtime.feed_all(event)
    await assert_it_serves(subject)
    assert len(reached) == PARTITIONS + 1
    assert len(errors(caplog)) == 1


@subjects
@simulated
async def test_an_event_for_all_reaches_a_shard_that_failed_after_its_load(
    kind: type[Subject], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    reached: list[object] = []

    def event(shard: object, now_ms: int) -> list[object]:
        reached.append(shard)
        return []

    subject.runtime.on_elected(0, 2)
    fail_once(monkeypatch, subject.shard_class, "on_loaded")
    subject.runtime.feed_all(event)
    await assert_it_serves(subject)
    assert len(reached) == PARTITIONS
    assert len(errors(caplog)) == 1


@subjects
@simulated
async def test_a_failing_callback_does_not_fail_the_shard(
    kind: type[Subject], caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    hosted = subject.runtime.shards.active(0)

    def broken(response: object) -> None:
        raise InjectedError(INJECTED)

    def answer(now_ms: int, ticket: Any) -> list[Any]:
        hosted.shard.pipeline.reply(ticket, NONE)
        return hosted.shard.pipeline.take_effects()  # type: ignore[no-any-return]

    subject.runtime.submit(hosted, broken, lambda error: error, answer)
    assert await subject.write(2) is NONE
    assert subject.runtime.shards.active(0) is hosted
    [error] = errors(caplog)
    assert error.exc_info


@subjects
@simulated
async def test_a_request_is_answered_once(kind: type[Subject]) -> None:
    subject = await started(kind)
    hosted, answers = subject.runtime.shards.active(0), list[ErrorCode]()

    def answer_twice(now_ms: int, ticket: Any) -> list[Any]:
        hosted.shard.pipeline.reply(ticket, NONE)
        hosted.shard.pipeline.reply(ticket, ErrorCode.UNKNOWN_SERVER_ERROR)
        return hosted.shard.pipeline.take_effects()  # type: ignore[no-any-return]

    subject.runtime.submit(hosted, answers.append, lambda error: error, answer_twice)
    subject.runtime.close()
    assert answers == [NONE]


@subjects
@simulated
async def test_a_repeatedly_failing_shard_is_reloaded_with_backoff(
    kind: type[Subject], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that repeats a failing request must not keep the node busy with loading."""
    subject = await started(kind)
    loop, pauses_s = asyncio.get_running_loop(), list[float]()
    for _ in range(4):
        fail_once(monkeypatch, subject.shard_class, subject.request)
        failed_s = loop.time()
        assert await subject.write(2) is ErrorCode.UNKNOWN_SERVER_ERROR
        await subject.runtime.loaded()
        pauses_s.append(loop.time() - failed_s)
    assert pauses_s == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.01)
    assert len(errors(caplog)) == 4
    await asyncio.sleep(61)
    fail_once(monkeypatch, subject.shard_class, subject.request)
    failed_s = loop.time()
    assert await subject.write(2) is ErrorCode.UNKNOWN_SERVER_ERROR
    await subject.runtime.loaded()
    assert loop.time() - failed_s == pytest.approx(0.1, abs=0.01), "a shard that has served for a while starts again"


@subjects
@simulated
async def test_a_shard_that_is_loaded_again_still_counts(kind: type[Subject]) -> None:
    subject = await started(kind)
    before = subject.runtime.counts.appends
    subject.log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    subject.runtime.on_elected(0, 2)
    await subject.runtime.loaded()
    assert await subject.write(2) is NONE
    assert subject.runtime.counts.appends == before + 1


@subjects
@simulated
async def test_a_record_that_a_shard_cannot_read_names_the_partition(
    kind: type[Subject], caplog: pytest.LogCaptureFixture
) -> None:
    subject = await started(kind)
    record: LogRecord = (b"", None)
    subject.log.partitions[1].append(record)
    subject.runtime.on_elected(1, 2)
    await subject.runtime.loaded()
    assert f"partition 1 of {subject.log.topic}" in caplog.text
    await assert_partition_serves(subject)


async def assert_partition_serves(subject: Subject) -> None:
    assert await subject.write(2) is NONE
    assert await subject.value() == 2
