"""Print how the removal of each guard is detected: `python -m tests.simulation.mutations`."""

import time

import pytest
from tests.simulation.mutations.guards import BREAKS, DIFFERS
from tests.simulation.mutations.noticing import noticed


def main() -> None:
    """Print a Markdown table with a row per mutation."""
    print("| without | scenario | noticed by | CPU ms |\n|---|---|---|---|")
    for mutate, scenario in (BREAKS | DIFFERS).items():
        begun = time.process_time()
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            found = noticed(scenario)
        cost_ms = (time.process_time() - begun) * 1000
        print(f"| {mutate.__name__.replace('_', ' ')} | {scenario} | {found.text if found else ''} | {cost_ms:.0f} |")


if __name__ == "__main__":
    main()
