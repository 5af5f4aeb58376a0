"""`python -m tests.crash.kills --kills 1000`: lives of transactions until that many processes were killed.

Each life has a new cluster, and the next combination of transaction.version and group.protocol.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from tests.support.transaction_life import VARIANTS, Report, live

KILLS_OF_A_LIFE: Final = 50
SHOWN_EVERY_S: Final = 30.0
LIFE_S_MAX: Final = 3600.0
"""A life that takes longer is ended: some calls of librdkafka have no time-out."""


class Progress:
    """Prints the kills of all lives at intervals."""

    def __init__(self, kills: int) -> None:
        self._kills = kills
        self._began = self._shown = time.monotonic()

    def show(self, report: Report, what: object) -> None:
        """Print a line."""
        now = self._shown = time.monotonic()
        print(f"{now - self._began:6.0f} s  {report.kills} of {self._kills} kills: {what}", flush=True)

    def maybe_show(self, report: Report, what: object) -> None:
        """Print a line, unless one was printed recently."""
        if time.monotonic() > self._shown + SHOWN_EVERY_S:
            self.show(report, what)


def main() -> int:
    """Play lives, print progress, and stop at the first one with findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="processes to kill (1000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of the first life")
    parser.add_argument("--folder", type=Path, help="where clusters are created (a temporary folder)")
    options = parser.parse_args()
    total, progress = Report(), Progress(options.kills)
    for life in itertools.count():
        remaining = options.kills - total.kills
        if remaining <= 0:
            break
        seed, variant = options.seed + life, VARIANTS[(options.seed + life) % len(VARIANTS)]
        folder = Path(tempfile.mkdtemp(prefix="klamm-kills-", dir=options.folder))

        def show(report: Report, before: Report = total, what: str = f"{variant}, seed {seed}") -> None:
            progress.maybe_show(before + report, what)

        try:
            kills = min(remaining, KILLS_OF_A_LIFE)
            report = live(folder / "cluster", variant, seed, kills, show, seconds_max=LIFE_S_MAX)
        except (AssertionError, TimeoutError):
            traceback.print_exc()
            print(f"\nafter {total}\nthe nodes' folders are in {folder}; repeat this life with\n")
            print(f"  python -m tests.crash.kills --seed {seed} --kills {KILLS_OF_A_LIFE}")
            return 1
        except KeyboardInterrupt:
            print(f"stopped: {total}: nothing was wrong in whole lives; go on with\n")
            print(f"  python -m tests.crash.kills --seed {seed} --kills {remaining}")
            return 130
        shutil.rmtree(folder)
        total += report
        progress.show(total, f"life {life + 1} was right, {variant}, seed {seed}: {report}")
    print(f"{total}: nothing was lost, doubled, torn or read from aborted transactions, and all offsets are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
