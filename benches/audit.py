"""`python -m benches.audit`: the time and memory of `klamm audit` for a metadata log of a million records, and whether
it is right.

The log is that of a random cluster of 30 brokers (`tests/support/metadata_life`), determined by a seed, with snapshots.
Prints one JSON object: seconds, CPU seconds of all processes and peak resident memory in MB for the report, and whether
its counts equal what happened.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rich.console
from tests.support.metadata_life import Life, Truth

from klamm.pipelines.bench.process_tree import Watch, tree

BROKERS, TOPICS = 30, 1500
LOOK_S = 0.2


def write(directory: Path, records: int, seed: int, snapshots: int) -> Truth:
    """Write the log to the directory."""
    status = rich.console.Console(stderr=True).status("")
    with status:
        life = Life(directory, seed, brokers=BROKERS, topics=TOPICS)
        truth = life.live(
            records,
            snapshots=snapshots,
            on_progress=lambda at: status.update(f"writing: {at:,} of {records:,} records"),
        )
        life.close()
    return truth


def command(*arguments: str) -> dict[str, Any]:
    """Run `klamm audit` in its own process; returns its output and its resource usage."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, Watch(os.getpid()) as watch:
        process = subprocess.Popen([sys.executable, "-m", "klamm", "audit", *arguments, "--json"], stdout=output)
        # The JVM is not waited for, so its CPU time is read while it is running.
        cpu = 0.0
        while process.poll() is None:
            cpu = max(cpu, sum(one.cpu for one in tree(process.pid)))
            time.sleep(LOOK_S)
        wall = time.monotonic() - begun
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        raise SystemExit(process.returncode)
    answers: dict[str, Any] = json.loads(text)
    answers["took"] = {
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "jvm_mb": watch.used.jvm_rss >> 20,
        "worker_mb": watch.used.worker_rss >> 20,
    }
    return answers


def differences(truth: Truth, answers: dict[str, Any]) -> list[str]:
    """The differences between the answers and what happened, as text."""
    expected = {
        "leadership": truth.moves.total(),
        "unclean_elections": len(truth.unclean),
        "under_replicated": len(truth.under_replicated),
        "leaderless": len(truth.leaderless),
        "config_changes": truth.configs.total(),
        "elections": len(truth.elections),
    }
    found = {question: answers[question]["count"] for question in expected}
    return [f"{name}: {found[name]:,} instead of {count:,}" for name, count in expected.items() if found[name] != count]


def main() -> None:
    """Write, audit, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep the log, and the report, here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-audit-bench-") as temporary:
        directory = given.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        truth = write(directory, given.records, given.seed, given.snapshots)
        wrote_s = time.monotonic() - begun
        report = directory / "report.html"
        report_json = command("--data", str(directory), "--html", str(report), "--limit", "1")
        size = sum(file.stat().st_size for file in directory.rglob("*.log"))
        wrong = differences(truth, report_json["answers"])
        shown = {
            "records": given.records,
            "log_mb": size >> 20,
            "writing_seconds": round(wrote_s, 1),
            **report_json["took"],
            "report_kb": report.stat().st_size >> 10,
            "wrong": wrong,
        }
        print(json.dumps(shown, indent=2))
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
