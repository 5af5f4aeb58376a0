"""`python -m klamm.testing.simulator --seeds 1000`, or `--seed 42 --trace` to see one in words."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from klamm.testing.simulator.run import Outcome, SimulationFailedError, play, play_dynamic

PROGRESS_EVERY_S = 5.0
SEEDS_AT_ONCE = 20


def main() -> int:
    """Play seeds; the first failure is played again for its schedule, which is printed, and ends it."""
    parser = argparse.ArgumentParser(prog="python -m klamm.testing.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one seed")
    parser.add_argument("--seeds", type=int, default=200, help="play so many seeds (200)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--dynamic", action="store_true", help="play quorums whose voters change (KIP-853)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one a core)")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed, is_whole=options.trace, dynamic=options.dynamic)
    began = time.monotonic()
    progress = Progress(options.seeds)
    for failed, outcomes in results(options.first, options.seeds, options.jobs, dynamic=options.dynamic):
        if failed is not None:
            print()
            return show(failed, is_whole=False, dynamic=options.dynamic)
        progress.add(outcomes)
    print(f"\r{progress.text}, {time.monotonic() - began:.1f} s: every invariant held")
    return 0


def show(seed: int, *, is_whole: bool, dynamic: bool) -> int:
    """Play a seed and print what happened in words: all of it, or the last of it when it fails."""
    trace: list[str] = []
    try:
        outcome = (play_dynamic if dynamic else play)(seed, trace=trace)
    except SimulationFailedError as error:
        print("\n".join([*trace, ""]) if is_whole else "the last of what happened is below; --trace prints all of it")
        print(error)
        return 1
    print("\n".join([*(trace if is_whole else []), str(outcome)]))
    return 0


def results(first: int, count: int, jobs: int, *, dynamic: bool) -> Iterator[tuple[int | None, list[Outcome]]]:
    """The seed that failed, if one did, and the outcomes of a few seeds, in the order of the seeds."""
    ranges = [
        range(start, min(start + SEEDS_AT_ONCE, first + count)) for start in range(first, first + count, SEEDS_AT_ONCE)
    ]
    play_each = partial(play_some, dynamic=dynamic)
    if jobs == 1:
        yield from map(play_each, ranges)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(play_each, ranges)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def play_some(seeds: range, *, dynamic: bool) -> tuple[int | None, list[Outcome]]:
    """Play these seeds up to the first that fails."""
    outcomes = []
    for seed in seeds:
        try:
            outcomes.append((play_dynamic if dynamic else play)(seed))
        except SimulationFailedError:
            return seed, outcomes
    return None, outcomes


class Progress:
    """Counts, and prints where it stands every few seconds."""

    def __init__(self, seed_count: int) -> None:
        self._seed_count = seed_count
        self._played = self._events = self._installed = 0
        self._printed = time.monotonic()

    def add(self, outcomes: list[Outcome]) -> None:
        """Some more seeds were played."""
        self._played += len(outcomes)
        self._events += sum(outcome.event_count for outcome in outcomes)
        self._installed += sum(outcome.installed_count for outcome in outcomes)
        if time.monotonic() - self._printed >= PROGRESS_EVERY_S:
            self._printed = time.monotonic()
            print(f"\r{self.text}", end="", flush=True)

    @property
    def text(self) -> str:
        """Where it stands."""
        return (
            f"{self._played} of {self._seed_count} seeds, {self._events} events, {self._installed} snapshots installed"
        )


if __name__ == "__main__":
    sys.exit(main())
