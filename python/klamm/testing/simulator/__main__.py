"""`python -m klamm.testing.simulator --seeds 1000`, or `--seed 42 --trace` to see one in words."""

import argparse
import sys
import time

from klamm.testing.simulator.run import SimulationFailedError, play


def main() -> int:
    """Play seeds; the first failure is printed and ends it."""
    parser = argparse.ArgumentParser(prog="python -m klamm.testing.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one seed")
    parser.add_argument("--seeds", type=int, default=200, help="play so many seeds (200)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began, events = time.monotonic(), 0
    for seed in seeds:
        trace: list[str] | None = [] if options.trace else None
        try:
            outcome = play(seed, trace=trace)
        except SimulationFailedError as error:
            print("\n".join(trace or []))
            print(error)
            return 1
        if trace is not None:
            print("\n".join(trace))
            print(outcome)
        events += outcome.event_count
    print(f"{len(seeds)} seeds, {events} events, {time.monotonic() - began:.1f} s: every invariant held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
