"""Every cell of `make bench` with a minimum of work: each measures something; the figures are not checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from benches import raft_library, rdkafka
from benches.cells import (
    Cell,
    codec,
    data,
    departures,
    endurance,
    groups,
    lives,
    loading,
    metadata,
    quorum,
    replicated,
    sessions,
    share,
    topics,
    transactions,
)
from benches.rows import METADATA, METADATA_OF_TWO_MILLION, rows
from benches.servers import CEILING, KLAMM, KLAMM_DURABLE, Bench

from tests.support.foreign import give_up, require_package
from tests.support.workspace import programs

MB = 1_000_000

# The debug build of the load generator may have to be built first.
pytestmark = pytest.mark.timeout(600)

FIGURES_OF_START = {
    "first answer ms",
    "first acknowledged record ms",
    "resident MB, idle",
    "CPython alone ms",
    "CPython importing asyncio ms",
}
OF_DEPARTURES = {
    "controlled shutdown, s",
    "controlled shutdown, CPU s",
    "recovery from an unclean stop, s",
    "recovery from an unclean stop, CPU s",
    "longest answer to another's heartbeat meanwhile, ms",
    "controller's start from a snapshot, s",
    "controller's start after kill -9, s",
    "resident MB",
}
STALLS_OF_GROUPS = {
    f"{phase}: {figure}"
    for phase in ("all join", "all is quiet", "every group has a new target")
    for figure in (
        "stall p50 ms",
        "stall p99 ms",
        "p99 of the loop's own ms",
        "p99 of processor time ms",
        "longest stall ms",
        "longest of the loop's own ms",
        "longest of processor time ms",
    )
}
CELLS: list[tuple[Cell, str, set[str]]] = [
    (data.produce(1024, MB), KLAMM, {"GB/s", "M records/s", "CPU-s/GB"}),
    (data.produce(100, MB), CEILING, {"GB/s", "M records/s", "CPU-s/GB"}),
    (data.fetch(1024, MB), KLAMM, {"GB/s", "CPU-s/GB"}),
    (
        data.keyed(MB, (4, 50)),
        KLAMM,
        {f"{count} producers, {figure}" for count in (4, 50) for figure in ("GB/s", "M records/s", "CPU-s/GB")},
    ),
    (data.latency(1), KLAMM_DURABLE, {"p50 us", "p99 us", "p99.9 us"}),
    (
        sessions.fetches(2, 20),
        KLAMM,
        {f"{who}, {size} partitions, us" for who in ("consumer", "follower") for size in (2, 20)},
    ),
    (data.through(MB), KLAMM_DURABLE, {"produce GB/s", "fetch GB/s", "resident MB"}),
    (topics.create_one(2, 10), KLAMM_DURABLE, {"p50 ms", "p50 at 10 topics ms"}),
    (topics.create_many(10, 10), KLAMM_DURABLE, {"10 topics, topics/s", "5 topics of 10, partitions/s"}),
    (topics.creates(1), KLAMM_DURABLE, {"topics/s", "CPU us a topic"}),
    (topics.commits(1), KLAMM_DURABLE, {"commits/s", "CPU us a commit"}),
    (topics.command(1), KLAMM_DURABLE, {"median ms"}),
    (lives.start, KLAMM_DURABLE, FIGURES_OF_START),
    (lives.embedded(1, 3), KLAMM, {"Cluster() ms", "first acknowledged record ms", "close ms"}),
    (lives.embedded(1), KLAMM, {"Cluster() ms", "first acknowledged record ms", "close ms"}),
    (
        lives.stalls(MB),
        KLAMM_DURABLE,
        {"stall p50 ms", "stall p99 ms", "longest stall ms", "longest of the loop's own ms"},
    ),
    (lives.killed(3 * MB), KLAMM_DURABLE, {"first answer ms", "first acknowledged record ms"}),
    (quorum.library(0.1), KLAMM_DURABLE, {"commands/s", "CPU us a command"}),
    (quorum.killed_controller(1), KLAMM_DURABLE, {"shortest ms", "median ms", "longest ms"}),
    (quorum.create_one(2, 10), KLAMM_DURABLE, {"p50 ms", "p50 at 10 topics ms"}),
    (quorum.creates(1), KLAMM_DURABLE, {"topics/s", "CPU us a topic, all four"}),
    (share.rates(1_000, 2, 2), KLAMM_DURABLE, {"records/s", "CPU us a record"}),
    (share.in_flight(4_000, "all"), KLAMM_DURABLE, {"records in flight", "bytes a record in flight"}),
    (replicated.data(MB, 1), KLAMM, {"GB/s", "M records/s", "CPU-s/GB, all three", "p50 us", "p99 us"}),
    (
        replicated.keyed(MB, (4, 50)),
        KLAMM,
        {
            f"{count} producers, {figure}"
            for count in (4, 50)
            for figure in ("GB/s", "M records/s", "CPU-s/GB, all three")
        },
    ),
    (replicated.commits(1), KLAMM_DURABLE, {"commits/s", "CPU us a commit, all three"}),
    (replicated.failover(1), KLAMM_DURABLE, {"shortest ms", "median ms", "longest ms"}),
    (
        replicated.resident(6),
        KLAMM_DURABLE,
        {
            "until all are written to s",
            "resident MB of all three, idle",
            "resident MB of all three",
            "KiB a replica",
        },
    ),
    (replicated.followers(MB), KLAMM, {"leader, CPU-s/GB", "each follower, CPU-s/GB"}),
    (replicated.role_changes(6), KLAMM_DURABLE, {"until the last are writable ms", "CPU ms of both"}),
    (
        endurance.minutes(2, 1, MB),
        KLAMM_DURABLE,
        {
            "first minute, p99.9 us",
            "last minute, p99.9 us",
            "last minute's p99.9, times the first's",
            "first minute, GB/s",
            "last minute, GB/s",
            "last minute's GB/s, times the first's",
            "deleted by retention, MB",
            "removed by compaction, MB",
        },
    ),
    *(
        (
            transactions.rates(1, (1, 50), brokers),
            KLAMM_DURABLE,
            {
                f"{count}, {figure}"
                for count in ("1 producer", "50 producers")
                for figure in ("transactions/s", "p99 of a commit us", "CPU us a transaction")
            }
            | {"50 producers at 50/s, p99 of a commit us"},
        )
        for brokers in (1, 3)
    ),
    (loading.offsets(MB, 1000), KLAMM_DURABLE, {"load s", "resident MB"}),
    (transactions.memory(20), KLAMM, {"KiB a transactional id"}),
    (
        groups.members(4, 2),
        KLAMM,
        {"join, s", "rebalance, s", "leave, s", "p99 of a heartbeat us", "CPU us a heartbeat"},
    ),
    (groups.stalls(6, 2), KLAMM, {"all join, s", "every group has its target, s", *STALLS_OF_GROUPS}),
    (departures.departures(1000), KLAMM, {f"0.001 M: {figure}" for figure in OF_DEPARTURES}),
    (
        metadata.pause(1000),
        KLAMM,
        {
            "longest pause, 1,000 partitions, ms",
            "longest of the loop's own, 1,000 partitions, ms",
            "longest pause of as long a time without, 1,000 partitions, ms",
        },
    ),
]
FIGURES_OF_LIBRDKAFKA = {f"{what} {unit}" for what in ("produce", "fetch") for unit in ("GB/s", "CPU-s/GB")}
FIGURES_OF_LIVES = {
    "resident MB",
    "open files",
    "restart: first answer ms",
    "restart: first acknowledged record ms",
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch, Bench(quick=True, settle_bytes=0) as running:
        patch.setenv("KLAMM_BENCH_PROGRAMS", str(programs()))
        yield running


@pytest.mark.parametrize(("cell", "kind", "figures"), CELLS)
def test_a_cell_returns_its_figures(bench: Bench, cell: Cell, kind: str, figures: set[str]) -> None:
    found = cell(bench, kind)
    assert set(found) == figures
    assert all(math.isfinite(value) and value >= 0 for value in found.values()), found


@pytest.mark.slow  # it compiles librdkafka
@pytest.mark.parametrize("kind", [KLAMM, CEILING])
def test_librdkafka_measures_both(bench: Bench, kind: str) -> None:
    reason = rdkafka.why_not()
    if reason is not None:
        give_up(reason)
    found = data.librdkafka(1024, MB)(bench, kind)
    assert set(found) == FIGURES_OF_LIBRDKAFKA
    assert all(math.isfinite(value) and value >= 0 for value in found.values()), found


def test_partitions_are_written_and_read_with_few_open_files(bench: Bench) -> None:
    found = lives.many_partitions(40, {"klamm.open.files.max": "20"})(bench, KLAMM_DURABLE)
    assert set(found) == FIGURES_OF_LIVES
    assert 0 < found["open files"] <= 20 + 64


def test_recovery_reads_the_log_after_the_recovery_point(bench: Bench) -> None:
    found = lives.recovery(4 * MB, 4 * MB)(bench, KLAMM_DURABLE)
    assert found["GB/s"] > 0
    assert found["of the disk's rate"] == pytest.approx(found["GB/s"] / found["disk GB/s"])


def test_a_check_reads_every_log(bench: Bench) -> None:
    found = lives.checked(4 * MB)(bench, KLAMM_DURABLE)
    assert found["GB/s"] * found["seconds"] * 1e9 >= 4 * MB
    assert found["of the disk's rate"] == pytest.approx(found["GB/s"] / found["disk GB/s"])


def test_idle_connections_are_counted(bench: Bench) -> None:
    found = lives.idle_connections(150, 1)(bench, KLAMM)
    assert set(found) == {"KiB each", "wake-ups/s", "wake-ups/s without them"}


def test_the_codec_is_compared_with_aiokafka(bench: Bench) -> None:
    require_package("aiokafka")
    assert codec.ratios(bench, KLAMM)["encode, times aiokafka's rate"] > 0


def test_every_goal_is_for_a_figure_of_a_cell() -> None:
    # Sizes in a figure's name are those of the plan.
    given = set().union(*(figures for _, _, figures in CELLS)) | FIGURES_OF_LIVES
    given |= FIGURES_OF_LIBRDKAFKA
    given |= {"p50 at 4,000 topics ms", "1,000 topics, topics/s", "5 topics of 1,000, partitions/s"}
    given |= {"of the disk's rate", "GB read a GB behind the recovery point", "KiB each", "wake-ups/s"}
    given |= {f"{what}, times aiokafka's rate" for what in ("encode", "decode to objects", "decode to columns")}
    given |= {figure for goals in (METADATA, METADATA_OF_TWO_MILLION) for row in goals.values() for figure in row}
    given |= {f"{size} M: {figure}" for figure in OF_DEPARTURES for size in (1, 2)}
    given |= {f"longest pause, {size} partitions, ms" for size in ("1,000,000", "2,000,000")}
    given |= {f"{who}, {size} partitions, us" for who in ("consumer", "follower") for size in ("100", "10,000")}
    wanted = {goal.figure for row in rows(quick=False) for goal in row.goals}
    assert wanted <= given, json.dumps(sorted(wanted - given))


def test_the_librarys_other_load(tmp_path: Path) -> None:
    found = raft_library.measure(tmp_path, *raft_library.CELLS["one, single"], seconds=0.1)
    assert found.keys() == {"records_per_s", "cpu_s_per_million"}
    assert all(value > 0 for value in found.values())
