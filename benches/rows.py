"""The rows of the table: what is measured, on which servers, and the goals of klamm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from benches import rdkafka
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
from benches.goals import CEILING, KAFKA, KLAMM, Goal, at_least, at_most, larger_of, times
from benches.servers import CEILING_DURABLE, KLAMM_DURABLE

PAGE_CACHE: Final = (KAFKA, KLAMM, CEILING)
DURABLE: Final = (KLAMM_DURABLE, CEILING_DURABLE)
BESIDE_KAFKA: Final = (KAFKA, KLAMM_DURABLE)
ALONE: Final = (KLAMM_DURABLE,)


@dataclass(frozen=True)
class Row:
    """One row. `number` is that of the goal, `name` is printed in the table."""

    number: int
    name: str
    cell: Cell
    kinds: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    rounds_max: int = 100
    cells_a_round: int = 1
    """Runs per round: short cells run more often, because a small disturbance changes them by a tenth."""
    why_not: Callable[[], str | None] = lambda: None
    """Why it cannot be measured here; None when it can. The row is then left out with that reason."""
    is_alone: bool = False
    """Its cells start their own servers; shared servers are stopped before."""

    def answers_to(self, word: str) -> bool:
        """Whether a word of the command line selects this row: its number, or a part of its name."""
        return int(word) == self.number if word.isdecimal() else word.lower() in self.name.lower()


def rows(*, quick: bool) -> list[Row]:
    """All rows, in the order of measurement."""
    shared = _data(quick) + _librdkafka(quick) + _control(quick)
    alone = _fresh_topics(quick) + _starts(quick) + _quorum(quick) + _replicated(quick) + _recoveries(quick)
    alone += [*_transactions(quick), *_groups(quick), *_share_groups(quick), *_alone(quick), _endurance(quick)]
    return shared + [replace(row, is_alone=True) for row in alone]


def _data(quick: bool) -> list[Row]:
    size = 100_000_000 if quick else 500_000_000
    often = 1 if quick else 3
    return [*_bulk(size, often), *_acknowledgement(2 if quick else 10), _keyed(size, often)]


def _bulk(size: int, often: int) -> list[Row]:
    """Produce and fetch of `size` bytes."""
    near_ceiling = at_least("GB/s", times(0.85, CEILING), "0.85 C")
    cpu = at_most("CPU-s/GB", times(1.25, CEILING), "1.25 C")
    fetch_cpu = at_most("CPU-s/GB", times(1.1, CEILING), "1.1 C")
    return [
        Row(
            4,
            "produce 1 KiB, page cache",
            data.produce(1024, size),
            PAGE_CACHE,
            (near_ceiling, cpu),
            cells_a_round=often,
        ),
        Row(
            4,
            f"burst of {9 * size // 5_000_000} MB, page cache",
            data.produce(1024, 9 * size // 5),
            (KLAMM, CEILING),
            (near_ceiling,),
        ),
        Row(5, "produce 1 KiB, durable", data.produce(1024, size), DURABLE, (near_ceiling,), cells_a_round=often),
        Row(
            6,
            "produce 100 B, page cache",
            data.produce(100, size // 2),
            PAGE_CACHE,
            (
                at_least("M records/s", times(0.9, CEILING), "0.9 C"),
                at_most("CPU-s/GB", times(1.5, CEILING), "1.5 C"),
            ),
            cells_a_round=often,
        ),
        Row(7, "fetch 1 KiB", data.fetch(1024, size), PAGE_CACHE, (fetch_cpu,), cells_a_round=often),
        Row(7, "fetch 100 B", data.fetch(100, size // 2), PAGE_CACHE, (fetch_cpu,), cells_a_round=often),
    ]


def _acknowledgement(seconds: int) -> list[Row]:
    """The latency of an acknowledgement at a constant rate."""
    p99 = larger_of(times(1 / 3, KAFKA), times(1.3, CEILING))
    return [
        Row(
            8,
            "acknowledgement at 1,000/s, page cache",
            data.latency(seconds),
            PAGE_CACHE,
            (
                at_most("p50 us", times(1.3, CEILING), "1.3 C"),
                at_most("p99 us", p99, "the larger of K / 3 and 1.3 C"),
            ),
        ),
        Row(
            9,
            "acknowledgement at 1,000/s, durable",
            data.latency(seconds),
            DURABLE,
            (
                at_most(
                    "p99 us", times(1, KAFKA, row="acknowledgement at 1,000/s, page cache"), "K's from the page cache"
                ),
            ),
        ),
    ]


def _keyed(size: int, often: int) -> Row:
    """Many producers of small batches."""
    return Row(
        20,
        "keyed small batches",
        data.keyed(size // 2, (4, 50)),
        PAGE_CACHE,
        (
            at_least("50 producers, M records/s", times(2, KAFKA), "2 K"),
            at_least(
                "50 producers, GB/s",
                times(0.85, KLAMM, figure="4 producers, GB/s"),
                "0.85 of that with 4 producers",
            ),
            at_most("50 producers, CPU-s/GB", times(1, KAFKA), "K"),
            at_least("4 producers, GB/s", times(0.85, CEILING), "0.85 C"),
        ),
        cells_a_round=often,
    )


def _librdkafka(quick: bool) -> list[Row]:
    cell = data.librdkafka(1024, 50_000_000 if quick else 500_000_000)
    near_ceiling = at_least("produce GB/s", times(0.85, CEILING), "0.85 C")
    fetch = at_least("fetch GB/s", times(0.85, CEILING), "0.85 C")
    return [
        Row(4, "librdkafka, 1 KiB, page cache", cell, PAGE_CACHE, (near_ceiling, fetch), why_not=rdkafka.why_not),
        Row(5, "librdkafka, 1 KiB, durable", cell, DURABLE, (near_ceiling, fetch), why_not=rdkafka.why_not),
    ]


def _control(quick: bool) -> list[Row]:
    return [
        *[
            Row(
                25,
                f"offset commits of classic groups, {durability}",
                topics.commits(2 if quick else 5),
                kinds,
                (at_least("commits/s", times(1, KAFKA), "K"), at_most("CPU us a commit", times(1, KAFKA), "K")),
            )
            for durability, kinds in (("page cache", (KAFKA, KLAMM)), ("durable (K: page cache)", BESIDE_KAFKA))
        ],
        Row(
            30,
            "klamm topics list, or kafka-topics --list: start to end of its process",
            topics.command(3 if quick else 10),
            BESIDE_KAFKA,
            (at_most("median ms", 250),),
            rounds_max=5,
        ),
    ]


def _fresh_topics(quick: bool) -> list[Row]:
    many = f"p50 at {4000:,} topics ms"
    return [
        Row(
            10,
            "create one topic",
            topics.create_one(20 if quick else 100, 4000),
            BESIDE_KAFKA,
            (at_most("p50 ms", 1.5), at_most(many, times(1.25, KLAMM, figure="p50 ms"), "1.25 of the former")),
        ),
        Row(
            10,
            "create one topic, three controllers",
            quorum.create_one(20 if quick else 100, 4000),
            BESIDE_KAFKA,
            (at_most("p50 ms", 1.5), at_most(many, times(1.25, KLAMM, figure="p50 ms"), "1.25 of the former")),
        ),
        Row(
            11,
            "create in bulk",
            topics.create_many(1000, 1000),
            BESIDE_KAFKA,
            (
                at_least("1,000 topics, topics/s", times(5, KAFKA), "5 K"),
                at_least("5 topics of 1,000, partitions/s", times(5, KAFKA), "5 K"),
            ),
        ),
        Row(
            12,
            "create topics from many clients",
            topics.creates(1 if quick else 5),
            BESIDE_KAFKA,
            (at_least("topics/s", 4_000),),
        ),
        Row(
            12,
            "create topics from many clients, three controllers",
            quorum.creates(1 if quick else 5),
            BESIDE_KAFKA,
        ),
        Row(
            5,
            f"{'1 GB' if quick else '10 GB'} in and out, durable (K: page cache)",
            data.through(1_000_000_000 if quick else 10_000_000_000),
            BESIDE_KAFKA,
            (at_least("produce GB/s", times(1, KAFKA), "K"), at_most("resident MB", 80)),
            rounds_max=1,
        ),
        Row(
            25,
            "control loop under data load",
            lives.stalls(500_000_000 if quick else 4_000_000_000),
            ALONE,
            (at_most("stall p99 ms", 5),),
        ),
    ]


def _starts(quick: bool) -> list[Row]:
    return [
        Row(
            1,
            "start",
            lives.start,
            BESIDE_KAFKA,
            (
                at_most("first answer ms", 60),
                at_most("first acknowledged record ms", 100),
                at_most("resident MB, idle", 45),
            ),
        ),
        Row(
            2,
            "start, embedded in a process",
            lives.embedded(5 if quick else 20),
            (KLAMM,),
            (at_most("first acknowledged record ms", 25),),
        ),
        Row(
            2,
            "start of three brokers, embedded in a process, replication 3",
            lives.embedded(3 if quick else 10, 3),
            (KLAMM,),
            (at_most("first acknowledged record ms", 250),),
        ),
        Row(
            3,
            "6,000 partitions",
            lives.many_partitions(6000),
            BESIDE_KAFKA,
            (at_most("resident MB", 100), at_most("restart: first acknowledged record ms", 300)),
            rounds_max=2,
        ),
        Row(
            24,
            "6,000 partitions, klamm.open.files.max=1000",
            lives.many_partitions(6000, {"klamm.open.files.max": "1000"}),
            ALONE,
            (at_most("open files", 1064, "1,000 and 64 that are no log's"),),
            rounds_max=1,
        ),
    ]


def _quorum(quick: bool) -> list[Row]:
    return [
        Row(
            12,
            "klamm.raft, three replicas, commands of 100 B",
            quorum.library(1 if quick else 5),
            ALONE,
            (at_least("commands/s", 50_000),),
        ),
        Row(
            15,
            "kill -9 of the active controller of three: next metadata write",
            quorum.killed_controller(3 if quick else 20),
            BESIDE_KAFKA,
            (at_most("median ms", 100),),
            rounds_max=1,
        ),
    ]


def _replicated(quick: bool) -> list[Row]:
    """Three brokers, one cluster at a time."""
    size, seconds, changes = (50_000_000, 1, 100) if quick else (500_000_000, 10, 10_000)
    half_cpu = at_most("CPU-s/GB, all three", times(0.5, KAFKA), "K / 2")
    data_goals = {
        "page cache": (KAFKA, KLAMM, (at_least("GB/s", times(3, KAFKA), "3 K"),)),
        "durable (K: page cache)": (
            *BESIDE_KAFKA,
            (
                at_least("GB/s", times(2, KAFKA), "2 K"),
                half_cpu,
                at_most("p99 us", times(0.5, KAFKA), "K / 2"),
            ),
        ),
    }
    return [
        *[
            Row(26, f"three brokers, replication 3, 1 KiB, {durability}", replicated.data(size, seconds), kinds, goals)
            for durability, (*kinds, goals) in data_goals.items()
        ],
        Row(
            20,
            "three brokers, replication 3, keyed small batches",
            replicated.keyed(size // 5, (4, 50)),
            (KAFKA, KLAMM),
            (
                at_least("50 producers, M records/s", times(2, KAFKA), "2 K"),
                at_most("50 producers, CPU-s/GB, all three", times(1, KAFKA), "K"),
            ),
        ),
        Row(
            25,
            "three brokers, replication 3, offset commits, durable (K: page cache)",
            replicated.commits(2 if quick else 5),
            BESIDE_KAFKA,
            (
                at_least("commits/s", times(1, KAFKA), "K"),
                at_most("CPU us a commit, all three", times(1, KAFKA), "K"),
            ),
        ),
        Row(
            16,
            "kill -9 of controller and broker in one of three: last of 12 partitions writable",
            replicated.failover(2 if quick else 5),
            BESIDE_KAFKA,
            (at_most("longest ms", 300),),
            rounds_max=1,
        ),
        Row(
            16,
            f"kill -9 of the leader of {changes:,} partitions",
            replicated.role_changes(changes),
            BESIDE_KAFKA,
            rounds_max=1,
        ),
        *[
            Row(26, f"a leader and its two followers, 1 KiB, {durability}", replicated.followers(size), kinds)
            for durability, (*kinds, _) in data_goals.items()
        ],
        Row(
            3,
            "three brokers, replication 3, 6,000 partitions",
            replicated.resident(6000),
            BESIDE_KAFKA,
            (
                at_most("resident MB of all three, idle", 3 * 45),
                at_most("resident MB of all three", 3 * 100),
            ),
            rounds_max=1,
        ),
    ]


def _endurance(quick: bool) -> Row:
    count, seconds, size = (3, 2, 50_000_000) if quick else (10, 50, 1_000_000_000)
    return Row(
        21,
        f"three brokers, replication 3, {count} minutes with retention, compaction and a backlog, durable",
        endurance.minutes(count, seconds, size),
        ALONE,
        (
            at_most("last minute's p99.9, times the first's", 1.2),
            at_least("last minute's GB/s, times the first's", 0.97),
        ),
        rounds_max=1,
    )


def _transactions(quick: bool) -> list[Row]:
    seconds, ids, producers = (2, 1_000, (1, 4)) if quick else (10, transactions.IDS, (1, 50))
    names = [f"{count} producer{'s' * (count > 1)}" for count in producers]
    goals = [at_least(f"{name}, transactions/s", times(3, KAFKA), "3 K") for name in names]
    timed = (*names, transactions.at_rate(producers))
    goals += [at_most(f"{name}, p99 of a commit us", times(1 / 3, KAFKA), "K / 3") for name in timed]
    return [
        *[
            Row(
                27,
                f"transactions of 100 KiB, {where}, durable (K: page cache)",
                transactions.rates(seconds, producers, brokers),
                BESIDE_KAFKA,
                tuple(goals),
            )
            for where, brokers in (("one broker", 1), ("three brokers, replication 3", 3))
        ],
        Row(27, f"{ids:,} transactional ids", transactions.memory(ids), BESIDE_KAFKA, rounds_max=1),
    ]


def _groups(quick: bool) -> list[Row]:
    members, spread = (100, (200, 10)) if quick else (1_000, (10_000, 100))
    phases = ("join", "rebalance", "leave")
    return [
        Row(
            28,
            f"one group of {members:,} members (KIP-848), then {members // 10:,} more join and leave",
            groups.members(members, members // 10),
            BESIDE_KAFKA,
            tuple(at_most(f"{phase}, s", times(1 / 3, KAFKA), "K / 3") for phase in phases),
            rounds_max=1 if quick else 3,
        ),
        Row(
            28,
            f"control loop with {spread[0]:,} members of {spread[1]} groups, whose topic gets more partitions",
            groups.stalls(*spread),
            ALONE,
            (at_most("every group has a new target: stall p99 ms", 5),),
            rounds_max=1,
        ),
    ]


def _share_groups(quick: bool) -> list[Row]:
    records, held = (200_000, 100_000) if quick else (2_000_000, 1_000_000)
    return [
        Row(
            29,
            "share group of 4 members, 10 partitions: 100 B records delivered and accepted, durable (K: page cache)",
            share.rates(records, 4, 10),
            BESIDE_KAFKA,
            (at_least("records/s", times(3, KAFKA), "3 K"),),
            rounds_max=3,
        ),
        *[
            Row(29, f"share group with {held:,} records in flight, {hold}", share.in_flight(held, hold), BESIDE_KAFKA)
            for hold in ("all", "every second one")
        ],
    ]


def _recoveries(quick: bool) -> list[Row]:
    return [
        Row(
            25,
            f"load of a coordinator's log of {'50 MB' if quick else '1 GB'}, 100,000 offsets",
            loading.offsets(50_000_000 if quick else 1_000_000_000, 100_000),
            BESIDE_KAFKA,
            (at_most("load s", times(0.2, KAFKA), "K / 5"),),
            rounds_max=2,
        ),
        Row(
            18,
            "restart after kill -9 under load, 220 MB in segments of 1 MiB",
            lives.killed(220_000_000),
            BESIDE_KAFKA,
            (at_most("first acknowledged record ms", 300),),
        ),
        Row(
            18,
            f"recovery of {'1 GB' if quick else '4 GB'} after kill -9",
            lives.recovery(*((1_000_000_000, 300_000_000) if quick else (4_000_000_000, 1_000_000_000))),
            BESIDE_KAFKA,
            (
                at_least("of the disk's rate", 0.8),
                at_most("GB read a GB behind the recovery point", 1.05),
            ),
            rounds_max=2,
        ),
        Row(
            18,
            f"storage check --deep of {'1 GB' if quick else '4 GB'}",
            lives.checked(1_000_000_000 if quick else 4_000_000_000),
            ALONE,
            (at_least("of the disk's rate", 0.8),),
            rounds_max=2,
        ),
    ]


# Processor time of one thread; for the write also the time until it is durable.
METADATA: Final[dict[int, dict[str, float]]] = {
    13: {
        "load a snapshot of 1000000 partitions, s": 0.25,
        "write a snapshot of 1000000 partitions, processor time, s": 0.4,
        "write a snapshot of 1000000 partitions, until it is durable, s": 0.4,
    },
    14: {
        "apply one change to one topic among 100000, us": 5,
        "apply one change after the other to topics among 100000, us": 5,
        "zone outage: apply 10000 changes in 6667 topics of 100000, ms": 2,
    },
    22: {
        "high watermark, one fetch of one of two followers, ns": 50,
        "high watermark, one fetch of one of two followers, through a lock, with a produce that waits, ns": 50,
        "high watermark, one fetch of one of two followers, through a lock, allocations": 0,
    },
}
# Twice the snapshot takes twice the time; a change costs what it costs in an image half as large.
METADATA_OF_TWO_MILLION: Final[dict[int, dict[str, float]]] = {
    13: {
        "load a snapshot of 2000000 partitions, s": 0.5,
        "write a snapshot of 2000000 partitions, processor time, s": 0.8,
        "write a snapshot of 2000000 partitions, until it is durable, s": 0.8,
    },
    14: {
        "apply one change to one topic among 200000, us": 5,
        "apply one change after the other to topics among 200000, us": 5,
        "zone outage: apply 10000 changes in 6667 topics of 200000, ms": 2,
    },
}


def _metadata(number: int, name: str) -> Row:
    return _image(number, name, METADATA[number], 1_000_000)


def _metadata_of_two_million(number: int, name: str) -> Row:
    return _image(number, f"{name}, two million partitions", METADATA_OF_TWO_MILLION[number], 2_000_000)


def _image(number: int, name: str, goals: dict[str, float], partitions: int) -> Row:
    limits = tuple(at_most(figure, limit) for figure, limit in goals.items())
    return Row(number, name, metadata.of_row(number, goals, partitions), (KLAMM,), limits, rounds_max=1)


def _departures(quick: bool) -> Row:
    # A fraction of the published cluster, which took 32 and 37 s with Apache Kafka.
    linear = [
        at_most(f"2 M: {what}, CPU s", times(2.5, KLAMM, figure=f"1 M: {what}, CPU s"), "2.5 of that at 1 M")
        for what in ("controlled shutdown", "recovery from an unclean stop")
    ]
    return Row(
        17,
        "metadata work of brokers that leave, RF 3 on ten brokers, one controller",
        departures.departures(*((2_000, 200_000) if quick else (2_000, 200_000, 1_000_000, 2_000_000))),
        (KLAMM,),
        (
            at_most("2 M: controlled shutdown, s", 3),
            at_most("2 M: recovery from an unclean stop, s", 3.5),
            *linear,
        ),
        rounds_max=1,
    )


def _sessions() -> Row:
    return Row(
        22,
        "fetch session with one busy partition",
        sessions.fetches(100, 10_000),
        (KLAMM,),
        tuple(
            at_most(
                f"{who}, 10,000 partitions, us",
                times(1.25, KLAMM, figure=f"{who}, 100 partitions, us"),
                "1.25 of that among 100",
            )
            for who in ("consumer", "follower")
        ),
    )


def _idle_connections(quick: bool) -> Row:
    return Row(
        23,
        "10,000 idle connections",
        lives.idle_connections(10_000, 2 if quick else 5),
        BESIDE_KAFKA,
        (
            at_most("KiB each", 4),
            at_most(
                "wake-ups/s",
                times(1, KLAMM, figure="wake-ups/s without them", more=10),
                "10 more than without them",
            ),
        ),
        rounds_max=1,
    )


def _alone(quick: bool) -> list[Row]:
    return [
        _idle_connections(quick),
        _metadata(13, "metadata snapshot"),
        _metadata_of_two_million(13, "metadata snapshot"),
        Row(
            13,
            "metadata snapshot: an event loop while it is written",
            metadata.pause(1_000_000, 2_000_000),
            (KLAMM,),
            tuple(at_most(f"longest pause, {size} partitions, ms", 1) for size in ("1,000,000", "2,000,000")),
            rounds_max=1,
        ),
        _metadata(14, "metadata image"),
        _metadata_of_two_million(14, "metadata image"),
        _departures(quick),
        _metadata(22, "replica"),
        _sessions(),
        Row(
            19,
            "record codec of Python",
            codec.ratios,
            (KLAMM,),
            (
                at_least("encode, times aiokafka's rate", 1.5),
                at_least("decode to objects, times aiokafka's rate", 1),
                at_least("decode to columns, times aiokafka's rate", 5),
            ),
            rounds_max=1,
        ),
    ]
