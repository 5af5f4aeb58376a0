"""`make bench`: klamm beside Apache Kafka and beside the ceiling, interleaved, in one run.

Every row runs its cells in turn on every server, several rounds; medians go into `benches/results/` and into the table.
Absolute figures are this machine's and this hour's: ratios are what counts. Without `java` and `mvn` the column of
Apache Kafka is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.interop import apache_kafka

from benches import cells, servers
from benches.cells import Cell, Figures
from benches.servers import Server

RESULTS = Path(__file__).with_name("results")
Rows = dict[str, dict[str, Figures]]


def rows(quick: bool) -> dict[str, tuple[Cell, tuple[str, ...]]]:
    """Name of a row: its cell, and the servers it runs on."""
    size = 100_000_000 if quick else 500_000_000
    seconds = 2 if quick else 10
    plain = ("kafka", "klamm", "ceiling")
    durable = ("klamm durable", "ceiling durable")
    return {
        "produce 1 KiB, page cache": (cells.produce(1024, size), plain),
        "produce 1 KiB, durable": (cells.produce(1024, size), durable),
        "produce 100 B, page cache": (cells.produce(100, size // 2), plain),
        "fetch 1 KiB": (cells.fetch(1024, size), plain),
        "fetch 100 B": (cells.fetch(100, size // 2), plain),
        "ack latency, page cache": (cells.latency(seconds), plain),
        "ack latency, durable": (cells.latency(seconds), durable),
        "create topics": (cells.create_topics(20 if quick else 100), ("kafka", "klamm durable")),
        "resident memory after all that": (cells.memory, ("kafka", "klamm", "klamm durable")),
    }


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, Server]]:
    """Every server there can be here, by name."""
    found: dict[str, Server] = {}
    try:
        missing = apache_kafka.why_not()
        if missing is None:
            found["kafka"] = servers.kafka("kafka", folder)
        else:
            print(f"Apache Kafka is left out: {missing}")
        found["klamm"] = servers.klamm("klamm", folder, {"klamm.flush.before.ack": "none"})
        found["klamm durable"] = servers.klamm("klamm durable", folder, {})
        found["ceiling"] = servers.ceiling("ceiling", folder, durable=False)
        found["ceiling durable"] = servers.ceiling("ceiling durable", folder, durable=True)
        yield found
    finally:
        for server in found.values():
            server.close()


def measure(quick: bool, only: Sequence[str], rounds: int) -> Rows:
    """All rows; of each figure the median over the rounds."""
    results: Rows = {}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, running(Path(folder)) as found:
        for name, (cell, wanted) in rows(quick).items():
            if only and not any(word in name for word in only):
                continue
            print(f"measuring: {name}", flush=True)
            runs: dict[str, list[Figures]] = {server: [] for server in wanted if server in found}
            for _ in range(1 if cell is cells.memory else rounds):
                for server, figures in runs.items():
                    figures.append(cell(found[server]))
            results[name] = {server: median(figures) for server, figures in runs.items()}
            print(table({name: results[name]}), flush=True)
    if not only or "start" in only:
        results["start"] = {"klamm": cells.start()}
        results["embedded"] = {"klamm": cells.embedded()}
    return results


def median(runs: Sequence[Figures]) -> Figures:
    """Figure by figure."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def table(results: Rows) -> str:
    """The results as Markdown."""
    lines = ["| what | server | figures |", "|---|---|---|"]
    for row, by_server in results.items():
        for server, figures in by_server.items():
            text = ", ".join(f"{number(value)} {unit}" for unit, value in figures.items())
            lines.append(f"| {row} | {server} | {text} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="small cells: to see that everything runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("only", nargs="*", help="words of the rows to run; none: all")
    options = parser.parse_args()
    results = measure(options.quick, options.only, options.rounds)
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y-%m-%d")
    machine = {"date": stamp, "machine": platform.machine(), "cpus": os.cpu_count()}
    file = RESULTS / f"{stamp}{'-quick' if options.quick else ''}.json"
    file.write_text(json.dumps({"run": machine, "rows": results}, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
