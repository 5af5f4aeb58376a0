"""The guarantees of the runtime for every kind of shard: load, write, commit, failure and rollback, unload, timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.simulated_time import SimulatedTimeLoop, simulated
from tests.unit.coordinator.memory_log import MemoryLog, appended

import klamm.coordinator.runtime
from klamm.coordinator.runtime.counts import RuntimeCounts
from klamm.coordinator.runtime.hosted_shard import LoadState
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX
from klamm.protocol.errors import ErrorCode, KafkaError

from .subjects import BATCH_BYTES_MAX, COMMIT_TIMEOUT_MS, PARTITIONS, Counters, Groups, Rang, Subject

NONE = ErrorCode.NONE

subjects = pytest.mark.parametrize("kind", [Counters, Groups])


async def started(kind: type[Subject], log: MemoryLog | None = None) -> Subject:
    subject = kind(log or MemoryLog())
    await subject.started()
    return subject


async def reloaded(subject: Subject) -> Subject:
    """Another runtime on the same log."""
    return await started(type(subject), subject.log)


def pause(seconds: float) -> None:
    """The process is stopped for that long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedTimeLoop)
    loop.stop_for(seconds)


def test_the_runtime_knows_no_kind_of_shard() -> None:
    [folder] = klamm.coordinator.runtime.__path__
    for path in Path(folder).glob("*.py"):
        text = path.read_text().lower()
        assert not [word for word in ("group", "__consumer", "consumer_offset", "member") if word in text], path.name


# Loading


@subjects
@simulated
async def test_a_runtime_loads_what_another_wrote(kind: type[Subject]) -> None:
    first = await started(kind)
    assert await first.write(3) is NONE
    assert await first.write(4) is NONE
    assert await first.write(5, 1) is NONE
    first.runtime.close()
    second = await reloaded(first)
    assert [await second.value(partition) for partition in range(PARTITIONS)] == [4, 5]
    assert second.runtime.counts.loads == PARTITIONS


@subjects
@simulated
async def test_a_partition_that_is_loaded_is_not_served_yet(kind: type[Subject]) -> None:
    subject = kind(MemoryLog())
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        subject.runtime.shards.active(0)
    subject.runtime.on_elected(0, 1)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        subject.runtime.shards.active(0)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        subject.runtime.shards.all_active()
    await subject.runtime.loaded()
    assert [hosted.partition for hosted in subject.runtime.shards.all_active()] == [0]


@subjects
@simulated
async def test_many_records_are_loaded_in_turns(kind: type[Subject]) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    subject.log.partitions[0] *= 2_000
    again = kind(subject.log)
    again.runtime.on_elected(0, 1)
    [hosted], turns = again.runtime.shards.all(), 0
    while hosted.state is LoadState.LOADING:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    assert await again.value() == 1


@subjects
@simulated
async def test_a_log_that_cannot_be_read_is_not_served(kind: type[Subject], caplog: pytest.LogCaptureFixture) -> None:
    subject = await started(kind)
    assert await subject.write(7) is NONE
    subject.spoil()
    with caplog.at_level(logging.ERROR, "klamm.coordinator"):
        again = await reloaded(subject)
    hosted = again.runtime.shards.get(0)
    assert hosted is not None
    assert hosted.state is LoadState.FAILED
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        again.runtime.shards.active(0)
    assert [one.partition for one in again.runtime.shards.all_active()] == [1], "the other partition is served"
    [error] = caplog.records
    assert "partition 0" in error.message
    assert error.exc_info is None, "a record that is known to be unreadable needs no traceback"
    subject.log.partitions[0].pop()
    await again.runtime.load_changed()
    assert await again.value() == 7, "the load was tried again"


@subjects
@simulated
async def test_a_log_that_is_temporarily_unreadable_is_loaded_later(kind: type[Subject]) -> None:
    """For example without free descriptors: until then, clients get a retriable error."""
    subject = await started(kind)
    assert await subject.write(7) is NONE
    subject.log.load_refusals = [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    subject.runtime.on_elected(0, 2)
    await asyncio.sleep(0.05)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        subject.runtime.shards.active(0)
    await subject.runtime.loaded()
    assert subject.log.load_refusals == []
    assert await subject.value() == 7
    assert subject.runtime.counts.load_failures == 2


@subjects
@simulated
async def test_an_event_for_all_shards_reaches_a_loading_one_after_its_load(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.runtime.on_elected(1, 2)
    reached: list[int] = []

    def event(shard: object, now_ms: int) -> list[object]:
        reached.extend(hosted.partition for hosted in subject.runtime.shards.all() if hosted.shard is shard)
        return []

    subject.runtime.feed_all(event)
    assert reached == [0]
    await subject.runtime.loaded()
    assert reached == [0, 1]


# Writes


async def in_flight(subject: Subject, values: Iterable[int]) -> list[asyncio.Future[ErrorCode]]:
    """Write the values 1, 2, ... in appends of their own, which are not committed yet."""
    answers = []
    for value in values:
        answers.append(subject.write(value))
        await appended(subject.log, value)
    return answers


@subjects
@simulated
async def test_a_write_is_answered_when_it_is_committed_and_read_from_then_on(kind: type[Subject]) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    subject.log.stopped = True
    answer = subject.write(2)
    await appended(subject.log)
    newest = subject.read(newest=True)
    await asyncio.sleep(1)
    assert not answer.done()
    assert not newest.done()
    assert await subject.value() == 1
    subject.log.finish_all()
    assert await answer is NONE
    assert await newest == (NONE, 2)
    assert await subject.value() == 2


@subjects
@simulated
async def test_writes_of_one_turn_are_appended_together(kind: type[Subject]) -> None:
    subject = await started(kind)
    answers = [subject.write(value, partition) for value in range(1, 4) for partition in range(PARTITIONS)]
    await asyncio.gather(*answers)
    [call] = subject.log.calls
    assert sorted((batch.partition, len(batch.records)) for batch in call) == [(0, 3), (1, 3)]
    assert (subject.runtime.counts.appends, subject.runtime.counts.appended_records) == (2, 6)


@subjects
@simulated
async def test_a_write_does_not_wait_for_the_append_before(kind: type[Subject]) -> None:
    """With as many appends in flight as there may be, writes share the next one."""
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, range(1, RECORDS_IN_FLIGHT_MAX + 1))
    later = [subject.write(value) for value in (8, 9)]
    await asyncio.sleep(1)
    assert len(subject.log.calls) == RECORDS_IN_FLIGHT_MAX
    subject.log.finish()
    assert await answers[0] is NONE
    await appended(subject.log, RECORDS_IN_FLIGHT_MAX)
    assert not any(answer.done() for answer in [*answers[1:], *later])
    assert await subject.value() == 1
    subject.log.finish_all()
    assert await asyncio.gather(*answers, *later) == [NONE] * (RECORDS_IN_FLIGHT_MAX + 2)
    sizes = [len(batch.records) for call in subject.log.calls for batch in call]
    assert sizes == [1] * RECORDS_IN_FLIGHT_MAX + [2]
    assert await subject.value() == 9


@subjects
@simulated
async def test_a_committed_append_commits_those_before_it(kind: type[Subject]) -> None:
    """Two threads may report the high watermark in the reverse order."""
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, (1, 2, 3))
    subject.log.waiting.pop(1)(NONE)
    assert [answer.done() for answer in answers] == [True, True, False]
    assert await subject.value() == 2
    subject.log.finish()
    assert await subject.value() == 2
    subject.log.finish_all()
    assert await asyncio.gather(*answers) == [NONE] * 3
    assert await subject.value() == 3


@subjects
@simulated
async def test_reads_with_several_appends_in_flight_and_a_queued_write(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, range(1, RECORDS_IN_FLIGHT_MAX + 1))
    newest = [subject.read(newest=True)]
    answers.append(subject.write(9))
    newest.append(subject.read(newest=True))
    await asyncio.sleep(1)
    assert await subject.value() == 0
    for value in range(1, RECORDS_IN_FLIGHT_MAX + 1):
        assert not any(read.done() for read in newest)
        subject.log.finish()
        assert await subject.value() == value
    assert await newest[0] == (NONE, RECORDS_IN_FLIGHT_MAX)
    assert not newest[1].done()
    subject.log.finish_all()
    await asyncio.gather(*answers)
    assert await newest[1] == (NONE, 9)


@subjects
@simulated
async def test_writes_that_do_not_fit_a_batch_together_follow_each_other(kind: type[Subject]) -> None:
    subject = await started(kind)
    padding = BATCH_BYTES_MAX // 2
    answers = [subject.write(value, padding=padding) for value in (1, 2, 3)]
    assert await asyncio.gather(*answers) == [NONE] * 3
    assert [len(batch.records) for call in subject.log.calls for batch in call] == [1, 1, 1]
    assert await (await reloaded(subject)).value() == 3


@subjects
@simulated
async def test_a_write_larger_than_a_batch_is_rejected_and_changes_nothing(kind: type[Subject]) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    assert await subject.write(2, padding=BATCH_BYTES_MAX) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await subject.read(newest=True) == (NONE, 1)


@subjects
@simulated
async def test_a_write_that_times_out_may_still_be_committed(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answer = subject.write(1)
    await asyncio.sleep((COMMIT_TIMEOUT_MS - 100) / 1000)
    assert not answer.done()
    await asyncio.sleep(0.2)
    assert answer.result() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    subject.log.finish_all()
    assert await subject.value() == 1


@subjects
@simulated
async def test_a_cancelled_write_is_still_committed(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answer = subject.write(1)
    await appended(subject.log)
    answer.cancel()
    subject.log.finish_all()
    assert await subject.value() == 1


# Failed writes


@subjects
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@simulated
async def test_a_failed_append_fails_all_later_writes(kind: type[Subject], code: ErrorCode, answer: ErrorCode) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    subject.log.stopped = True
    failing = subject.write(2)
    await appended(subject.log)
    padding = BATCH_BYTES_MAX // 2
    queued = [subject.write(value, padding=padding) for value in (3, 4)]
    subject.log.fail(code)
    assert await asyncio.gather(failing, *queued) == [answer] * 3
    assert await subject.read(newest=True) == (NONE, 1), "the state is that of the committed records"
    subject.log.finish_all()
    assert await (await reloaded(subject)).value() == 1
    assert await subject.write(5) is NONE
    assert await (await reloaded(subject)).value() == 5
    assert subject.runtime.counts.append_failures == 1


@subjects
@simulated
async def test_a_failed_append_leaves_those_before_it(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, (1, 2, 3))
    queued = [subject.write(4, padding=BATCH_BYTES_MAX // 2) for _ in range(RECORDS_IN_FLIGHT_MAX)]
    subject.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS, at=1)
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await asyncio.gather(*answers[1:], *queued) == [not_available] * (2 + RECORDS_IN_FLIGHT_MAX)
    assert not answers[0].done()
    assert await subject.value() == 0
    after = subject.write(5)
    await appended(subject.log, 2)
    assert await subject.value() == 0
    subject.log.finish_all()
    assert await asyncio.gather(answers[0], after) == [NONE, NONE]
    assert await subject.value() == 5
    assert await (await reloaded(subject)).value() == 5


@subjects
@simulated
async def test_appends_after_a_failed_one_are_another_series(kind: type[Subject]) -> None:
    """So the log knows which of those that it gets meanwhile build on the failed one."""
    subject = await started(kind)
    subject.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    padding = BATCH_BYTES_MAX // 2
    assert await asyncio.gather(*(subject.write(1, padding=padding) for _ in range(2))) != [NONE, NONE]
    subject.log.refusal = None
    assert await asyncio.gather(subject.write(2), subject.write(2, 1)) == [NONE, NONE]
    subject.runtime.on_elected(0, 2)
    await subject.runtime.loaded()
    assert await subject.write(3) is NONE
    series = [batch.series for call in subject.log.calls for batch in call if batch.partition == 0]
    assert series[0] == series[1]
    assert [each.leader_epoch for each in series[1:]] == [1, 1, 2]
    assert len({each.number for each in series[1:]}) == 3


@subjects
@simulated
async def test_late_results_of_a_failed_series_begin_no_other(kind: type[Subject]) -> None:
    """Otherwise the log would append what builds on a refused batch of the present one."""
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, (1, 2))
    [first, second], subject.log.waiting = subject.log.waiting, []
    subject.log.partitions[0].clear()
    first(ErrorCode.NOT_ENOUGH_REPLICAS)
    answers.append(subject.write(3))
    await appended(subject.log)
    second(ErrorCode.OPERATION_NOT_ATTEMPTED)
    answers.append(subject.write(4))
    await appended(subject.log, 2)
    subject.log.finish_all()
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await asyncio.gather(*answers) == [not_available, not_available, NONE, NONE]
    series = [batch.series for call in subject.log.calls for batch in call]
    assert series[0] == series[1] != series[2] == series[3]
    assert subject.runtime.counts.append_failures == 1


@subjects
@simulated
async def test_a_committed_append_that_was_rolled_back_reloads_the_shard(kind: type[Subject]) -> None:
    """A log must not do that. The state is that of the log all the same."""
    subject = await started(kind)
    subject.log.stopped = True
    answers = [subject.write(1)]
    await appended(subject.log)
    answers.append(subject.write(2))
    await appended(subject.log, 2)
    subject.log.partitions[0].pop(0)
    subject.log.finish(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert await asyncio.gather(*answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    subject.log.finish()
    await subject.runtime.loaded()
    assert await subject.value() == 2
    assert subject.runtime.counts.faults == 1


@subjects
@simulated
async def test_an_append_that_is_refused_at_once_is_rolled_back(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await subject.write(2) is ErrorCode.NOT_COORDINATOR
    subject.log.refusal = None
    assert await subject.read(newest=True) == (NONE, 0)
    assert await subject.write(3) is NONE
    assert await subject.value() == 3


@subjects
@pytest.mark.parametrize("survives", [True, False])
@simulated
async def test_an_append_whose_outcome_is_unknown_is_resolved_by_the_log(kind: type[Subject], survives: bool) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    subject.log.stopped = True
    answer = subject.write(2)
    await appended(subject.log)
    if not survives:
        subject.log.partitions[0].pop()
    subject.log.finish(None)
    assert await answer is ErrorCode.NOT_COORDINATOR
    await subject.runtime.loaded()
    assert await subject.value() == (2 if survives else 1)


@subjects
@simulated
async def test_an_unknown_outcome_of_one_of_several_appends_is_resolved_by_the_log(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answers = await in_flight(subject, (1, 2, 3))
    first, second, third = subject.log.waiting
    second(None)
    assert await asyncio.gather(*answers) == [ErrorCode.NOT_COORDINATOR] * 3
    subject.log.waiting = []
    await subject.runtime.loaded()
    later = subject.write(4)
    await appended(subject.log)
    first(NONE)
    third(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not later.done()
    assert await subject.value() == 3
    subject.log.finish_all()
    assert await later is NONE
    assert await subject.value() == 4


# Leadership


@subjects
@simulated
async def test_waiting_requests_fail_when_the_partition_moves(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    in_flight, other = subject.write(1), subject.write(9, 1)
    await appended(subject.log, 2)
    queued = subject.write(2)
    subject.runtime.on_resigned(0)
    assert in_flight.result() is ErrorCode.NOT_COORDINATOR
    assert queued.result() is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        subject.runtime.shards.active(0)
    subject.log.finish_all()  # including the append of the unloaded shard
    assert await other is NONE, "the other partition is served"


@subjects
@simulated
async def test_a_partition_that_moves_in_the_same_turn_appends_nothing(kind: type[Subject]) -> None:
    subject = await started(kind)
    answer = subject.write(1)
    subject.runtime.on_resigned(0)
    assert answer.result() is ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(1)
    assert subject.log.calls == []


@subjects
@simulated
async def test_a_new_leader_epoch_loads_again_and_an_old_one_is_ignored(kind: type[Subject]) -> None:
    subject = await started(kind)
    before = subject.runtime.shards.get(0)
    subject.runtime.on_elected(0, 1)
    subject.runtime.on_resigned(0, 1)
    assert subject.runtime.shards.get(0) is before
    subject.log.stopped = True
    answer = subject.write(1)
    await appended(subject.log)
    subject.runtime.on_elected(0, 2)
    assert await answer is ErrorCode.NOT_COORDINATOR
    await subject.runtime.loaded()
    subject.log.finish_all()
    assert await subject.value() == 1
    subject.runtime.on_resigned(0, 3)
    assert subject.runtime.shards.get(0) is None


@subjects
@simulated
async def test_a_load_is_cancelled_when_leadership_ends(kind: type[Subject]) -> None:
    subject = await started(kind)
    assert await subject.write(1) is NONE
    subject.log.partitions[0] *= 1_000
    again = kind(subject.log)
    again.runtime.on_elected(0, 1)
    await asyncio.sleep(0)
    again.runtime.on_resigned(0)
    await again.runtime.loaded()
    assert again.runtime.shards.all() == []
    assert again.runtime.counts.loads == 0


@subjects
@simulated
async def test_close_unloads_all_partitions(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.log.stopped = True
    answers = [subject.write(1), subject.write(1, 1)]
    subject.runtime.close()
    assert [answer.result() for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    assert subject.runtime.shards.all() == []


# Time


@subjects
@simulated
async def test_a_timer_fires_when_it_is_due_and_not_earlier(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.set_timer(10_000)
    await asyncio.sleep(9.9)
    assert not subject.has_fired()
    await asyncio.sleep(0.2)
    assert subject.has_fired()
    assert not subject.has_fired(1)


@subjects
@simulated
async def test_no_timer_fires_for_a_partition_that_is_gone(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.set_timer(10_000)
    await asyncio.sleep(1)
    records = len(subject.log.partitions.get(0, ()))
    subject.runtime.on_resigned(0)
    await asyncio.sleep(60)
    assert len(subject.log.partitions.get(0, ())) == records


@subjects
@simulated
async def test_timers_are_extended_by_a_pause(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.set_timer(10_000)
    await asyncio.sleep(5)
    pause(60)
    await asyncio.sleep(0.9)
    assert not subject.has_fired(), "there is time to read the requests that came meanwhile"
    await asyncio.sleep(10)
    assert subject.has_fired()


@subjects
@simulated
async def test_a_pause_detected_by_another_timer_counts_once(kind: type[Subject]) -> None:
    subject = await started(kind)
    subject.set_timer(60_000)
    await asyncio.sleep(1)
    pause(30)
    await asyncio.sleep(0)
    subject.runtime.on_pause(30_000)
    subject.runtime.on_pause(30_000)
    await asyncio.sleep(57)
    assert not subject.has_fired()
    await asyncio.sleep(5)
    assert subject.has_fired()


# A shard's own effects


@simulated
async def test_a_shards_own_effects_are_carried_out_by_its_driver() -> None:
    counters = Counters(MemoryLog())
    await counters.started()
    counters.set_timer(10, 1)
    await asyncio.sleep(1)
    assert counters.rang == [(1, Rang(1))]
    assert await counters.value(1) == 1


@simulated
async def test_an_effect_that_cannot_be_carried_out_fails_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(list[tuple[int, Rang]]):
        def append(self, item: tuple[int, Rang]) -> None:
            raise RuntimeError("no bell")

    counters = Counters(MemoryLog())
    await counters.started()
    assert await counters.write(3) is NONE
    counters.rang = Broken()
    counters.set_timer(10)
    await asyncio.sleep(1)
    await counters.runtime.loaded()
    assert await counters.value() == 3
    assert counters.runtime.counts.faults == 1
    assert "no bell" in caplog.text


def test_every_counter_has_a_unique_name() -> None:
    assert len(RuntimeCounts().named("")) == len(RuntimeCounts.__slots__)
