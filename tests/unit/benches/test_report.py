"""Goals and the table: an unmeasured goal is not reached, and every failure is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benches import charts, rdkafka, report
from benches.cells import CellError
from benches.goals import CEILING, KAFKA, KLAMM, at_least, at_most, larger_of, times
from benches.rows import Row, rows
from benches.run import Clock, Measured, measure
from benches.servers import Bench
from rich.console import Console

RUN = {
    "date": "2026-01-02 03:04:05 +0000",
    "quick": True,
    "words": ["produce"],
    "rounds": 2,
    "cpus": 2,
    "cpu": "a processor",
    "kernel": "6.1",
    "python": "3.11.9",
}


def no_cell(bench: Bench, kind: str) -> dict[str, float]:
    raise AssertionError("not to be run")


def results(measured: Measured) -> report.Results:
    return report.as_json([measured], RUN)


def test_limits_are_numbers_or_multiples_of_what_was_measured() -> None:
    medians = {"row": {KLAMM: {"p99 us": 120.0}, KAFKA: {"p99 us": 300.0}, CEILING: {"p99 us": 90.0}}}
    both = larger_of(times(1 / 3, KAFKA), times(1.3, CEILING))
    assert at_most("p99 us", both, "either").judge(medians, "row").limit == pytest.approx(117)
    assert at_most("p99 us", both, "either").judge(medians, "row").is_reached is False
    assert at_least("p99 us", 120).judge(medians, "row").is_reached is True
    assert at_most("p99 us", times(1, KLAMM, row="row", more=1), "itself").judge(medians, "row").is_reached is True


def test_an_unmeasured_goal_is_not_reached() -> None:
    medians = {"row": {KLAMM: {"GB/s": 2.0}}}
    assert at_least("GB/s", times(0.85, CEILING), "0.85 C").judge(medians, "row").is_reached is None
    assert at_least("commits/s", 1).judge(medians, "row").is_reached is None


def test_the_table_has_a_line_for_each_figure_with_its_goal() -> None:
    row = Row(4, "produce", no_cell, (), (at_least("GB/s", times(0.85, CEILING), "0.85 C"), at_most("MB", 45)))
    measured = Measured(row, {KLAMM: [{"GB/s": 1.0, "MB": 50.0}] * 2, CEILING: [{"GB/s": 1.0}, {"GB/s": 3.0}]})
    assert report.table(results(measured)).splitlines()[2:] == [
        "| produce: GB/s |  | 1 | 2 | >= 0.85 C = 1.7 | **no** |",
        "| produce: MB |  | 50 |  | <= 45 | **no** |",
    ]


def test_a_failed_cell_is_reported_in_the_table() -> None:
    row = Row(4, "produce", no_cell, (), (at_least("GB/s", 1),))
    found = results(Measured(row, {KLAMM: []}, {KLAMM: "CellError: no disk"}))
    assert report.table(found).splitlines()[2:] == ["| produce: GB/s |  | failed |  | >= 1 | not measured |"]
    assert report.failed(found) == ["produce, klamm: CellError: no disk"]


def test_the_block_of_the_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    found = results(Measured(Row(4, "produce", no_cell, ()), {KLAMM: [{"GB/s": 1.0}]}))
    report.put_into_page(found, page)
    assert page.read_text() == f"before\n{report.block(found)}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="no block between"):
        report.put_into_page(found, page)


@pytest.mark.parametrize(
    ("words", "quick", "failure", "said"),
    [
        ([], False, None, "Medians of a full run of `make bench`"),
        ([], True, "CellError: no disk", "Medians of a quick run (small cells) of `make bench`"),
        (["13", "codec"], False, None, "Medians of the rows named by 13, codec of `make bench`"),
        (
            [],
            False,
            "left out: the 40 minutes are over",
            "Medians of 1 of 2 rows, all that there was time for, of `make bench`",
        ),
    ],
)
def test_a_part_of_the_bench_is_not_called_a_full_run(
    words: list[str], quick: bool, failure: str | None, said: str
) -> None:
    whole = Measured(Row(4, "produce", no_cell, ()), {KLAMM: [{"GB/s": 1.0}]})
    other = Measured(Row(5, "durable", no_cell, ()), {KLAMM: []}, {KLAMM: failure} if failure else {})
    found = report.as_json([whole, other], RUN | {"words": words, "quick": quick})
    assert said in report.block(found)


def test_the_page_and_its_charts_show_the_newest_whole_run(tmp_path: Path) -> None:
    """After a change: `python -m benches --from benches/results/NEWEST.json --publish`."""
    run = charts.newest()
    assert report.PAGE.read_text().count(report.BEGIN) == 1
    assert report.block(run) in report.PAGE.read_text()
    charts.write(run, tmp_path)
    for chart in charts.CHARTS:
        drawn = (tmp_path / f"{chart.name}.svg").read_text()
        assert drawn == (report.ASSETS / f"{chart.name}.svg").read_text(), chart.name


def test_a_chart_shows_every_figure_that_it_names() -> None:
    rows = {row["name"]: row for row in charts.newest()["rows"]}
    for line in (line for chart in charts.CHARTS for line in chart.lines):
        assert line.figure in rows[line.row]["medians"][KLAMM], line


def test_results_are_written_with_their_samples(tmp_path: Path) -> None:
    found = results(Measured(Row(4, "produce", no_cell, ()), {KLAMM: [{"GB/s": 1.0}, {"GB/s": 2.0}]}))
    path = report.write(found, folder=tmp_path)
    assert path.name == "2026-01-02-03-04-05-quick-part.json"
    assert json.loads(path.read_text())["rows"][0]["samples"][KLAMM] == [{"GB/s": 1.0}, {"GB/s": 2.0}]


def test_words_and_numbers_select_rows() -> None:
    every = rows(quick=True)
    assert report.rows_of([], every) == every
    assert {row.number for row in report.rows_of(["8", "codec"], every)} == {8, 19}
    with pytest.raises(ValueError, match="no row is called 'nonsense'"):
        report.rows_of(["nonsense"], every)


def test_names_are_unique_and_goals_have_their_figures_once() -> None:
    every = rows(quick=False)
    assert len({row.name for row in every}) == len(every)
    for row in every:
        figures = [goal.figure for goal in row.goals]
        assert len(set(figures)) == len(figures), row.name


def test_a_run_continues_after_a_failure_and_ends_in_time() -> None:
    def fails(bench: Bench, kind: str) -> dict[str, float]:
        raise ValueError("broken")

    def works(bench: Bench, kind: str) -> dict[str, float]:
        return {"GB/s": 1.0}

    quiet = Console(quiet=True)
    plan = [Row(1, "first", fails, (KLAMM,)), Row(2, "second", works, (KLAMM,))]
    first, second = measure(plan, quick=True, rounds=2, kafka=False, clock=Clock(1), console=quiet)
    assert first.failures == {KLAMM: "ValueError: broken"}
    assert second.samples == {KLAMM: [{"GB/s": 1.0}, {"GB/s": 1.0}]}
    [late] = measure(plan[1:], quick=True, rounds=2, kafka=False, clock=Clock(-1), console=quiet)
    assert late.samples == {KLAMM: []}
    assert "minutes are over" in late.failures[KLAMM]


def test_an_unmeasurable_row_is_left_out_with_its_reason() -> None:
    row = Row(4, "by another client", no_cell, (KLAMM,), why_not=lambda: "it is not there")
    console = Console(record=True, width=200)
    with Bench(quick=True) as bench:
        assert bench.quick
        measured = measure([row], quick=True, rounds=1, kafka=False, clock=Clock(1), console=console)
    assert measured == []
    assert "by another client is left out: it is not there" in console.export_text()


def test_the_figures_of_rdkafka_performance() -> None:
    produced = "% 2000 messages produced (2048000 bytes), 1999 delivered (offset 0, 1 failed) in 735ms: 270 msgs/s and"
    consumed = "% 2000 messages (2048000 bytes) consumed in 106ms: 1886792 msgs/s (1932.08 MB/s)"
    assert rdkafka.result(f"% noise\n{produced} 276.76 MB/s") == (1999, 735)
    assert rdkafka.result(consumed) == (2000, 106)
    with pytest.raises(CellError, match="printed no result: % Sending"):
        rdkafka.result("% Sending 5 messages")
