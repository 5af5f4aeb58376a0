"""`python -m klamm.testing.simulator --brokers`: plays seeds of simulated brokers, or one with its trace."""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from klamm.testing.simulator.brokers.run import BrokerOutcome, play
from klamm.testing.simulator.run import SimulationFailedError

SEEDS_AT_ONCE = 10
PRINTED_EVERY_S = 30.0


def show(seed: int, *, is_whole: bool) -> int:
    """Run a seed and print its trace: completely, or the end of it if it fails."""
    trace: list[str] = []
    try:
        outcome = play(seed, trace=trace)
    except SimulationFailedError as error:
        print("\n".join([*trace, ""]) if is_whole else "the last of what happened is below; --trace prints all of it")
        print(error)
        return 1
    print("\n".join([*(trace if is_whole else []), str(outcome)]))
    return 0


def play_all(first: int, count: int, jobs: int) -> int:
    """Run seeds up to the first failure, and report."""
    played: list[BrokerOutcome] = []
    printed = time.monotonic()
    for outcomes, failed in _results(first, count, jobs):
        played += outcomes
        if failed is not None:
            print(f"{_text(played)}: every invariant held in them, and not in seed {failed}")
            return show(failed, is_whole=False)
        if time.monotonic() - printed >= PRINTED_EVERY_S:
            printed = time.monotonic()
            print(_text(played), flush=True)
    print(f"{_text(played)}: every invariant held")
    return 0


def _text(played: list[BrokerOutcome]) -> str:
    lives = sum(outcome.lives for outcome in played)
    acknowledged = sum(outcome.acknowledged_count for outcome in played)
    events = sum(outcome.event_count for outcome in played)
    return f"{len(played)} seeds of brokers, {events} events, {lives} lives, {acknowledged} acknowledged batches"


def _results(first: int, count: int, jobs: int) -> Iterator[tuple[list[BrokerOutcome], int | None]]:
    ranges = [
        range(start, min(start + SEEDS_AT_ONCE, first + count)) for start in range(first, first + count, SEEDS_AT_ONCE)
    ]
    if jobs == 1:
        yield from map(_play_some, ranges)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_play_some, ranges)


def _play_some(seeds: range) -> tuple[list[BrokerOutcome], int | None]:
    outcomes: list[BrokerOutcome] = []
    for seed in seeds:
        try:
            outcomes.append(play(seed))
        except SimulationFailedError:
            return outcomes, seed
    return outcomes, None
