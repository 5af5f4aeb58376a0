"""`python -m klamm.testing.simulator --seeds 1000`, or `--seed 42 --trace` to trace one seed."""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.synchronize import Event
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from klamm.testing.simulator.brokers import command
from klamm.testing.simulator.run import Outcome, SimulationFailedError, play, play_dynamic

SEEDS_AT_ONCE = 10
PLAIN_EVERY_S = 30.0  # one line per interval without a terminal

_stops: list[Event] = []  # in a worker process: whether to continue


class SeedResults(NamedTuple):
    """A few consecutive seeds: the outcomes before the first failure, and the failed seed."""

    outcomes: list[Outcome]
    failed: int | None


def main() -> int:
    """Run seeds; stop at the first failure, which is run again to print its trace."""
    parser = argparse.ArgumentParser(prog="python -m klamm.testing.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one seed")
    parser.add_argument("--seeds", type=int, default=200, help="the number of seeds to play (200)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--dynamic", action="store_true", help="play quorums whose voters change (KIP-853)")
    parser.add_argument("--brokers", action="store_true", help="play brokers and their replicas instead of a quorum")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one a core)")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    options = parser.parse_args()
    if options.brokers and options.seed is not None:
        return command.show(options.seed, is_whole=options.trace)
    if options.brokers:
        return command.play_all(options.first, options.seeds, options.jobs)
    if options.seed is not None:
        return show(options.seed, is_whole=options.trace, dynamic=options.dynamic)
    return play_all(options.first, options.seeds, options.jobs, dynamic=options.dynamic)


def show(seed: int, *, is_whole: bool, dynamic: bool) -> int:
    """Run a seed and print its trace: completely, or the end of it if it fails."""
    trace: list[str] = []
    try:
        outcome = (play_dynamic if dynamic else play)(seed, trace=trace)
    except SimulationFailedError as error:
        print("\n".join([*trace, ""]) if is_whole else "the last of what happened is below; --trace prints all of it")
        print(error)
        return 1
    print("\n".join([*(trace if is_whole else []), str(outcome)]))
    return 0


def play_all(first: int, count: int, jobs: int, *, dynamic: bool) -> int:
    """Run seeds and report the result: all of them, up to a failure, or until Ctrl-C."""
    tally = Tally(first, count, dynamic=dynamic)
    try:
        with tally.shown():
            for played in results(first, count, jobs, dynamic=dynamic):
                tally.add(played.outcomes)
                if played.failed is not None:
                    break
    except KeyboardInterrupt:
        print(f"stopped: {tally.text}: every invariant held in them; continue with\n  {tally.rest}")
        return 130
    if tally.next_seed < first + count:
        print(f"{tally.text}: every invariant held in them, and not in seed {tally.next_seed}")
        return show(tally.next_seed, is_whole=False, dynamic=dynamic)
    print(f"{tally.text}: every invariant held")
    return 0


def results(first: int, count: int, jobs: int, *, dynamic: bool) -> Iterator[SeedResults]:
    """The results of the seeds in order, a few at a time."""
    ranges = [
        range(start, min(start + SEEDS_AT_ONCE, first + count)) for start in range(first, first + count, SEEDS_AT_ONCE)
    ]
    play_each = partial(play_some, dynamic=dynamic)
    if jobs == 1:
        yield from map(play_each, ranges)
        return
    stop = multiprocessing.Event()
    pool = ProcessPoolExecutor(jobs, initializer=listen_to_the_parent, initargs=(stop,))
    try:
        yield from pool.map(play_each, ranges)
    finally:
        stop.set()  # each process completes its current seed
        pool.shutdown(wait=True, cancel_futures=True)


def listen_to_the_parent(stop: Event) -> None:
    """Ctrl-C reaches every process of a terminal: only the parent reports it and stops the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stops.append(stop)


def play_some(seeds: range, *, dynamic: bool) -> SeedResults:
    """Run these seeds up to the first failure."""
    outcomes = []
    for seed in seeds:
        if any(stop.is_set() for stop in _stops):
            break
        try:
            outcomes.append((play_dynamic if dynamic else play)(seed))
        except SimulationFailedError:
            return SeedResults(outcomes, seed)
    return SeedResults(outcomes, None)


class Tally:
    """Counts consecutive seeds from the first one on, and shows the progress."""

    def __init__(self, first: int, count: int, *, dynamic: bool) -> None:
        self._first, self._count, self._dynamic = first, count, dynamic
        self.next_seed = first
        self._events = self._installed = self._wipes = self._changes = self._lost = self._stuck = 0
        self._began = self._printed = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("dynamic quorums" if dynamic else "static quorums", total=count)

    def shown(self) -> Progress:
        """A progress bar, on a terminal only."""
        return self._progress

    def add(self, outcomes: list[Outcome]) -> None:
        """The next seeds were run."""
        self.next_seed += len(outcomes)
        self._events += sum(outcome.event_count for outcome in outcomes)
        self._installed += sum(outcome.installed_count for outcome in outcomes)
        self._wipes += sum(outcome.wipe_count for outcome in outcomes)
        self._changes += sum(outcome.voter_changes for outcome in outcomes)
        self._lost += sum(outcome.is_lost for outcome in outcomes)
        self._stuck += sum(outcome.is_stuck for outcome in outcomes)
        self._progress.update(self._task, completed=self.next_seed - self._first)
        if self._progress.disable and time.monotonic() - self._printed >= PLAIN_EVERY_S:
            self._printed = time.monotonic()
            print(self.text, flush=True)

    @property
    def text(self) -> str:
        """The progress."""
        kind = "dynamic seeds" if self._dynamic else "seeds"
        seconds = time.monotonic() - self._began
        return (
            f"{self.next_seed - self._first} of {self._count} {kind} from {self._first} on, {self._events} events, "
            f"{self._installed} snapshots installed, {self._wipes} disks lost, {self._changes} voter changes, "
            f"{self._lost + self._stuck} excused ({self._lost} lost, {self._stuck} stuck), {seconds:.0f} s"
        )

    @property
    def rest(self) -> str:
        """The command for the remaining seeds."""
        how = " --dynamic" if self._dynamic else ""
        left = self._first + self._count - self.next_seed
        return f"python -m klamm.testing.simulator{how} --first {self.next_seed} --seeds {left}"


if __name__ == "__main__":
    sys.exit(main())
