from __future__ import annotations

import json

import pytest

from klamm.pipelines.bench.workload import FULL, QUICK, Kind, Run, Size, Workload, summarise, workloads

READ = Workload(Kind.READ, Size(1000, 100))


def run(side: str, seconds: float, cpu: float = 1.0, worker_rss: int = 0, workload: Workload = READ) -> Run:
    return Run(workload, side, seconds, cpu, None, 50, worker_rss)


def test_rates_and_ratios_are_medians_of_rounds() -> None:
    runs = [
        *(run("klamm", 1.0, 0.5, 10), run("connector", 2.0, 1.0)),
        *(run("klamm", 4.0, 0.7, 30), run("connector", 4.0, 3.0)),  # a disturbance of both
        *(run("klamm", 1.0, 0.6, 20), run("connector", 3.0, 1.2)),
    ]
    ours, theirs = summarise(runs, "connector")
    assert (ours.rate, ours.rates) == (1000, (1000, 250, 1000))
    assert (ours.ratio, ours.ratios) == (2, (2, 1, 3))
    assert (ours.cpu, ours.cpu_ratio, ours.worker_rss) == (0.6, 2.0, 30)
    assert (theirs.side, theirs.rate, theirs.ratio, theirs.cpu_ratio) == ("connector", 1000 / 3, None, None)


def test_a_side_without_the_other_has_no_ratio() -> None:
    (alone,) = summarise([run("klamm", 1.0)], "connector")
    assert alone.ratio is None
    assert alone.cpu_ratio is None


def test_results_are_json() -> None:
    write = Workload(Kind.WRITE, Size(1000, 1024))
    results = summarise([run("klamm", 0.5), run("klamm", 1.0, workload=write)], "connector")
    found = json.loads(json.dumps([one.as_json() for one in results]))
    assert [(one["job"], one["record_bytes"], one["records_per_second"]) for one in found] == [
        ("read", 100, 2000),
        ("write", 1024, 1000),
    ]


def test_all_jobs_of_a_size_share_a_topic() -> None:
    assert [str(one) for one in workloads(FULL, [Kind.READ, Kind.STREAM])] == [
        "read 10 M of 100 B",
        "stream 10 M of 100 B",
        "read 1 M of 1024 B",
        "stream 1 M of 1024 B",
    ]


@pytest.mark.parametrize(("size", "text"), [(QUICK[0], "500 k of 100 B"), (Size(1234, 99), "1234 of 99 B")])
def test_sizes_in_words(size: Size, text: str) -> None:
    assert str(size) == text
