"""Translated offsets: exact if possible, and never beyond what a group has read."""

from __future__ import annotations

import random

import pytest

from klamm.pipelines.mirror.syncs import Run, Sync, Written, extended, joined, syncs_of, translate

SEEDS = range(100)


def written(first: int, last: int, rows: int, before: int, after: int, *runs: tuple[int, int, int]) -> Written:
    return Written("t", 0, rows, first, last, before, after, tuple(Run(*run) for run in runs))


def test_records_written_once_are_translated_exactly() -> None:
    syncs = extended((), syncs_of(written(100, 109, 10, 0, 10, (100, 0, 10))))
    assert syncs == (Sync(100, 0, 10),)
    assert [translate(syncs, offset) for offset in (99, 100, 105, 110, 200)] == [None, 0, 5, 10, 10]


def test_batches_that_continue_each_other_are_one_sync() -> None:
    syncs = extended((), syncs_of(written(0, 9, 10, 5, 15, (0, 0, 10))))
    assert extended(syncs, syncs_of(written(10, 19, 10, 15, 25, (10, 0, 10)))) == (Sync(0, 5, 20),)


def test_gaps_are_preserved() -> None:
    syncs = extended((), syncs_of(written(0, 9, 4, 0, 4, (0, 0, 2), (7, 2, 1), (9, 3, 1))))
    assert [translate(syncs, offset) for offset in (0, 1, 2, 6, 7, 8, 9, 10, 11)] == [0, 1, 2, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("grown", [9, 11, 25])
def test_with_other_records_only_the_ends_of_a_batch_are_known(grown: int) -> None:
    """A retried task or another writer: a group in the middle of a batch continues at the batch's beginning."""
    syncs = extended((), syncs_of(written(0, 9, 10, 3, 3 + grown, (0, 0, 10))))
    assert syncs == (Sync(0, 3), Sync(10, 3 + grown))
    assert [translate(syncs, offset) for offset in (0, 9, 10)] == [3, 3, 3 + grown]


def test_a_repeated_batch_replaces_its_syncs() -> None:
    syncs = extended((), syncs_of(written(0, 9, 10, 0, 10, (0, 0, 10))))
    syncs = extended(syncs, syncs_of(written(10, 19, 10, 10, 20, (10, 0, 10))))
    syncs = extended(syncs, syncs_of(written(10, 19, 10, 20, 30, (10, 0, 10))))
    assert syncs == (Sync(0, 0, 10), Sync(10, 20, 10))


def test_a_recreated_topic_replaces_its_syncs() -> None:
    syncs = extended((), syncs_of(written(500, 509, 10, 0, 10, (500, 0, 10))))
    assert extended(syncs, syncs_of(written(0, 4, 5, 10, 15, (0, 0, 5)))) == (Sync(0, 10, 5),)


def test_runs_that_continue_each_other_are_joined() -> None:
    assert joined([Run(0, 0, 2), Run(2, 2, 3), Run(7, 5, 1)]) == [Run(0, 0, 5), Run(7, 5, 1)]
    assert joined([Run(0, 0, 2), Run(2, 3, 3)]) == [Run(0, 0, 2), Run(2, 3, 3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_consumer_misses_a_record(seed: int) -> None:
    """A source with gaps, retried and repeated batches, and other writers: the invariant of every sync.

    A consumer that has read all records before an offset on the source, and continues at its translation, finds all
    others.
    """
    rng = random.Random(seed)
    density = rng.choice((0.3, 1.0))
    offsets = [offset for offset in range(400) if rng.random() < density]
    target: list[int | None] = [None] * rng.randrange(3)
    syncs: tuple[Sync, ...] = ()
    trouble = rng.choice((0.0, 0.3))
    at = 0
    while at < len(offsets):
        size = rng.choice((5, 100))
        batch = offsets[at : at + size]
        while True:
            if rng.random() < trouble:  # a task that failed half-way
                target += batch[: rng.randrange(size)]
            before = len(target)
            target += batch
            if rng.random() < trouble:  # another writer
                target.insert(rng.randrange(before, len(target) + 1), None)
            runs = joined([Run(offset, number, 1) for number, offset in enumerate(batch)])[:: rng.choice((1, 3))]
            learned = syncs_of(Written("t", 0, len(batch), batch[0], batch[-1], before, len(target), tuple(runs)))
            if rng.random() < trouble:  # killed before the syncs were stored, so the batch is repeated
                continue
            syncs = extended(syncs, learned)
            if rng.random() >= trouble:
                break
        at += size
        assert list(syncs) == sorted(syncs)
        written_so_far = offsets[:at]
        for _ in range(4):
            offset = rng.randrange(-5, 410)
            found = translate(syncs, offset)
            if found is not None:
                assert {one for one in written_so_far if one >= offset} <= set(target[found:])
    if not trouble and density == 1:
        assert [translate(syncs, offset) for offset in range(400)] == list(range(len(target) - 400, len(target)))


def test_stored_syncs_are_bounded_and_the_newest_are_exact() -> None:
    syncs: tuple[Sync, ...] = ()
    for number in range(600):  # every batch next to a record of another writer
        syncs = extended(syncs, [Sync(number * 10, number * 11, 10), Sync(number * 10 + 10, number * 11 + 11)])
    assert len(syncs) < 300
    assert translate(syncs, 5_995) == 599 * 11 + 5
    early = translate(syncs, 3_000)
    assert early is not None
    assert 0.8 * 300 * 11 < early <= 300 * 11
    assert translate(syncs, 0) == 0
