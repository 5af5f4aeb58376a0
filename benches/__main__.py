"""`make bench`: klamm compared with Apache Kafka and with the ceiling endpoint, interleaved in one run.

Each row runs its cells on the servers in turn, in several rounds; medians go into the table, all samples into
`benches/results/`. Absolute figures depend on the machine and its load, so only ratios are meaningful. Without `java`
and `mvn` there is no column of Apache Kafka. The exit code is 1 when something could not be measured; a missed goal is
a result.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benches import charts, machine, report, run
from benches.rows import rows

FULL_MINUTES = 35
QUICK_MINUTES = 6


def main() -> int:
    """Measure, write the results and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small cells, one round: to see that everything runs")
    parser.add_argument("--rounds", type=int, help="how often each cell runs (3; 1 with --quick)")
    parser.add_argument("--minutes", type=float, help="what is not begun by then is left out (35; 6 with --quick)")
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument(
        "--publish", action="store_true", help="put table and charts of this run into the documentation"
    )
    parser.add_argument("--from", dest="file", type=Path, help="measure nothing: show the results of this file")
    parser.add_argument("words", nargs="*", metavar="WORD", help="rows to run: numbers or parts of names; none: all")
    options = parser.parse_args()
    if options.publish and options.words:
        parser.error("the documentation shows whole runs: --publish takes no words")
    results = json.loads(options.file.read_text()) if options.file else _measured(parser, options)
    print(report.block(results))
    if options.publish:
        report.put_into_page(results)
        charts.write(results)
    failures = report.failed(results)
    for failure in failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _measured(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    console = Console(stderr=True)
    rounds = options.rounds or (1 if options.quick else 3)
    minutes = options.minutes or (QUICK_MINUTES if options.quick else FULL_MINUTES)
    try:
        wanted = report.rows_of(options.words, rows(quick=options.quick))
    except ValueError as error:
        parser.error(str(error))
    machine.prepare()
    about = machine.describe() | {"quick": options.quick, "rounds": rounds, "words": options.words}
    measured = run.measure(
        wanted,
        quick=options.quick,
        rounds=rounds,
        kafka=not options.no_kafka,
        clock=run.Clock(minutes),
        console=console,
    )
    results = report.as_json(measured, about)
    console.print(f"all samples are in {report.write(results)}", highlight=False, soft_wrap=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
