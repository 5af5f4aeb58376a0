"""The table, for the terminal and for the documentation, and all samples as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benches.cells import Figures
from benches.goals import COLUMNS, Goal, Verdict
from benches.rows import Row
from benches.run import Measured, is_left_out
from benches.servers import ROOT

RESULTS: Final = ROOT / "benches" / "results"
PAGE: Final = ROOT / "docs" / "reference" / "benchmarks.md"
ASSETS: Final = ROOT / "docs" / "assets"
BEGIN: Final = "<!-- figures -->"
END: Final = "<!-- /figures -->"
Results = dict[str, Any]
"""A run, as written to a file."""
HEAD: Final = "| what | Apache Kafka 4.3.1 | klamm | ceiling | goal | reached |\n|---|---|---|---|---|---|"


def as_json(measured: Sequence[Measured], run: Mapping[str, object]) -> Results:
    """All measurements, as written to a file."""
    medians = {one.row.name: one.medians() for one in measured}
    rows = []
    for one in measured:
        verdicts = [(goal, goal.judge(medians, one.row.name)) for goal in one.row.goals]
        rows.append(
            {
                "goal": one.row.number,
                "name": one.row.name,
                "seconds": round(one.seconds, 1),
                "medians": one.medians(),
                "samples": one.samples,
                "failures": one.failures,
                "goals": [_goal_as_json(goal, verdict) for goal, verdict in verdicts],
            }
        )
    return {"run": dict(run), "rows": rows}


def _goal_as_json(goal: Goal, verdict: Verdict) -> dict[str, object]:
    return {"figure": goal.figure, "wants": goal.text, "limit": verdict.limit, "reached": verdict.is_reached}


def table(results: Mapping[str, Any]) -> str:
    """Results in the form of `as_json` as a Markdown table with a line per figure."""
    return "\n".join([HEAD, *(line for row in results["rows"] for line in _lines(row))])


def _lines(row: Mapping[str, Any]) -> list[str]:
    goals = {goal["figure"]: goal for goal in row["goals"]}
    medians: Mapping[str, Figures] = row["medians"]
    figures = list(dict.fromkeys(figure for column in medians.values() for figure in column)) or list(goals)
    lines = []
    for figure in figures:
        values = [_value(medians, row["failures"], column, figure) for column in COLUMNS]
        lines.append(f"| {row['name']}: {figure} | {' | '.join(values)} | {' | '.join(_goal(goals.get(figure)))} |")
    return lines


def _value(medians: Mapping[str, Figures], failures: Mapping[str, str], column: str, figure: str) -> str:
    if figure in medians.get(column, {}):
        return number(medians[column][figure])
    return "failed" if column in failures else ""


def _goal(goal: Mapping[str, Any] | None) -> tuple[str, str]:
    if goal is None:
        return "", ""
    is_computed = not re.fullmatch(r"[<>]= [\d.,]+", goal["wants"])
    limit = f" = {number(goal['limit'])}" if is_computed and goal["limit"] is not None else ""
    return f"{goal['wants']}{limit}", {True: "yes", False: "**no**", None: "not measured"}[goal["reached"]]


def number(value: float) -> str:
    """Three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def failed(results: Mapping[str, Any]) -> list[str]:
    """What could not be measured, a line each."""
    return [
        f"{row['name']}, {column}: {reason}" for row in results["rows"] for column, reason in row["failures"].items()
    ]


def write(results: Mapping[str, Any], *, folder: Path = RESULTS) -> Path:
    """Write the results to a new file."""
    folder.mkdir(exist_ok=True)
    stamp = re.sub(r"[^0-9]+", "-", str(results["run"]["date"])[:19])
    kind = ("-quick" if results["run"]["quick"] else "") + ("-part" if results["run"]["words"] else "")
    path = folder / f"{stamp}{kind}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def block(results: Mapping[str, Any]) -> str:
    """The text between the markers of the page: a description of the run, and the table."""
    run = results["run"]
    cells = f"{run['rounds']} rounds" if run["rounds"] > 1 else "one round"
    most = max((len(cells) for row in results["rows"] for cells in row["samples"].values()), default=0)
    if most > run["rounds"]:
        cells += f" ({most} cells of rows whose cells last less than a second)"
    said = (
        f"Medians of {_which(results)} of `make bench` on {str(run['date'])[:10]}, {cells}: {run['cpus']} cores of "
        f"{run['cpu']}, client on the same machine, Linux {run['kernel']}, Python {run['python']}. K is Apache Kafka "
        f"with its default JVM flags, C is the ceiling."
    )
    return f"{BEGIN}\n{said}\n\n{table(results)}\n{END}"


def _which(results: Mapping[str, Any]) -> str:
    """Which rows were run: all, named ones, or those that fitted into the time."""
    run, count = results["run"], len(results["rows"])
    cells = " (small cells)" if run["quick"] else ""
    late = sum(any(is_left_out(reason) for reason in row["failures"].values()) for row in results["rows"])
    if run["words"]:
        return f"the rows named by {', '.join(run['words'])}{cells}"
    if late:
        return f"{count - late} of {count} rows{cells}, all that there was time for,"
    return f"a quick run{cells}" if run["quick"] else "a full run"


def put_into_page(results: Mapping[str, Any], page: Path = PAGE) -> None:
    """Replace the block of the page. Raises ValueError when it has no markers."""
    text = page.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{page.name} has no block between {BEGIN} and {END}")
    page.write_text(pattern.sub(lambda _: block(results), text))


def rows_of(words: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """The rows that the words name; without words, all. Raises ValueError for a word that names none."""
    for word in words:
        if not any(row.answers_to(word) for row in rows):
            raise ValueError(f"no row is called '{word}'; there are: {', '.join(row.name for row in rows)}")
    return [row for row in rows if not words or any(row.answers_to(word) for word in words)]
