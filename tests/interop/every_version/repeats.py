"""Requests that name the same thing several times."""

from __future__ import annotations

import itertools
from typing import Any

from klamm.protocol.api_key import ApiKey
from tests.interop.every_version.groups import find_coordinator
from tests.interop.every_version.records import batch
from tests.interop.every_version.topics import new_topic
from tests.interop.peers import Both, Peer, versions


def repeats(both: Both) -> None:
    """Topics and partitions that one request names more than once."""
    names = [f"r{version}" for version in versions(ApiKey.PRODUCE)]
    both.ask(ApiKey.CREATE_TOPICS, 7, "for repeats", topics=[*map(new_topic, names)], timeout_ms=9_000)
    both.learn_topics()
    orders: dict[str, list[tuple[str, list[int]]]] = {
        "twice in a row": [("", [0, 0])],
        "a topic twice": [("", [0]), ("", [1])],
        "a partition in two entries": [("", [0, 1]), ("", [1])],
        "another topic between": [("", [0]), ("p4", [0]), ("", [1])],
        "a partition around another topic": [("", [0]), ("p4", [0, 1]), ("", [0])],
        "an unknown topic twice": [("nope", [0]), ("p4", [0]), ("nope", [0, 1])],
        "an empty entry": [("", []), ("", [0])],
        "empty entries": [("p4", []), ("", [0]), ("p4", [])],
        "unknown partitions": [("", [9]), ("", [0, 9])],
    }
    for label, order in orders.items():
        repeated_produce(both, label, order)
        named = [(name or "p5", indexes) for name, indexes in order]
        asked = {"current_leader_epoch": -1, "timestamp": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
        fetch = asked | {"fetch_offset": 1, "partition_max_bytes": 1 << 20}
        both.every(
            1,
            label,
            replica_id=-1,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=lambda peer, named=named, fetch=fetch: [
                {
                    "topic": name,
                    "topic_id": peer.topic(name),
                    "partitions": [fetch | {"partition": index} for index in indexes],
                }
                for name, indexes in named
            ],
        )

        def by(index: str, *, named: Any = named, **fields: Any) -> list[dict[str, Any]]:
            return [
                {"name": name, "topic": name, "partitions": [fields | {index: one} for one in indexes]}
                for name, indexes in named
            ]

        both.every(ApiKey.LIST_OFFSETS, label, replica_id=-1, timeout_ms=9_000, topics=by("partition_index", **asked))
        both.every(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            label,
            replica_id=-1,
            topics=by("partition", current_leader_epoch=-1, leader_epoch=0),
        )
        both.every(ApiKey.DELETE_RECORDS, label, timeout_ms=9_000, topics=by("partition_index", offset=1))
        producers = [{"name": name, "partition_indexes": indexes} for name, indexes in named]
        both.every(ApiKey.DESCRIBE_PRODUCERS, label, topics=producers)
        both.every(ApiKey.METADATA, label, topics=[{"name": name, "topic_id": None} for name, _ in named], since=1)
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            label,
            topics=[{"name": name} for name, _ in named],
            response_partition_limit=2_000,
        )
    repeated_batches(both)
    repeated_names(both)


def repeated_produce(both: Both, label: str, order: list[tuple[str, list[int]]]) -> None:
    """Topics and partitions that one Produce names more than once; "" stands for a topic per version."""
    for version in versions(ApiKey.PRODUCE):
        named = [(name or f"r{version}", indexes) for name, indexes in order]
        for acks in (1, -1):  # the last one makes every record readable
            both.ask(
                0,
                version,
                f"{label}, {acks=}",
                acks=acks,
                timeout_ms=9_000,
                topic_data=lambda peer, named=named: [
                    {
                        "name": name,
                        "topic_id": peer.topic(name),
                        "partition_data": [{"index": index, "records": batch()} for index in indexes],
                    }
                    for name, indexes in named
                ],
            )


def repeated_batches(both: Both) -> None:
    """A Produce names a partition twice: first with bytes that are no batch, then with a valid batch."""
    whole = batch()
    data = {
        "good": whole,
        "damaged": whole[:-1] + bytes([whole[-1] ^ 1]),
        "magic 1": whole[:16] + b"\1" + whole[17:],
        "magic 3": whole[:16] + b"\3" + whole[17:],
        "nothing": b"",
        "two": whole * 2,
    }
    for version in (3, 9, 13):
        for labels in (*itertools.product(data, data), ("magic 1", "good", "damaged"), ("damaged", "magic 1", "good")):
            for name, index, acks in (("r3", 0, -1), ("r3", 0, 7), ("r3", 9, 1), ("nope", 0, 1)):
                both.ask(
                    0,
                    version,
                    f"{labels} to {name}-{index}, {acks=}",
                    acks=acks,
                    timeout_ms=9_000,
                    topic_data=lambda peer, named=(("r4", 0, "good"), *((name, index, label) for label in labels)): [
                        {
                            "name": name,
                            "topic_id": peer.topic(name),
                            "partition_data": [{"index": index, "records": data[label]}],
                        }
                        for name, index, label in named
                    ],
                )


def repeated_names(both: Both) -> None:
    """Repeated names in requests for single resources."""
    find_coordinator(both)
    long = "m" * 5_000
    orders: dict[str, list[tuple[str, list[tuple[int, int, str | None]]]]] = {
        "twice": [("c2", [(0, 5, "a"), (0, 6, "b")])],
        "twice, the first refused": [("c2", [(0, 5, long), (0, 6, "b")])],
        "twice, the second refused": [("c2", [(0, 5, "b"), (0, 6, long)])],
        "in two entries": [("c2", [(0, 5, "a")]), ("c2", [(0, 7, None)])],
        "around another topic": [("c2", [(0, 5, "a")]), ("c3", [(1, 9, "b")]), ("c2", [(1, 8, "b")])],
        "an unknown topic twice": [("nope", [(0, 5, "a")]), ("c3", [(1, 9, "b")]), ("nope", [(1, 9, "b")])],
        "an unknown partition twice": [("c2", [(99, 5, "a"), (99, 5, "a"), (0, 6, "x")]), ("c2", [(99, 1, "")])],
        "entries without partitions": [("c2", []), ("c2", [(0, 1, "")]), ("nope", []), ("c3", [])],
        "nothing but an empty entry": [("c2", [])],
    }
    for label, order in orders.items():
        for version in versions(ApiKey.OFFSET_COMMIT):
            both.ask(
                8,
                version,
                f"commit, {label}",
                group_id=f"repeats{version}",
                member_id="",
                generation_id=-1,
                generation_id_or_member_epoch=-1,
                retention_time_ms=-1,
                topics=lambda peer, order=order: [
                    {
                        "name": name,
                        "topic_id": peer.topic(name),
                        "partitions": [
                            {
                                "partition_index": index,
                                "committed_offset": offset,
                                "committed_metadata": text,
                                "committed_leader_epoch": -1,
                            }
                            for index, offset, text in partitions
                        ],
                    }
                    for name, partitions in order
                ],
            )

        def fetched_by(version: int, order: Any = order) -> dict[str, Any]:
            def topics_of(peer: Peer) -> list[dict[str, Any]]:
                return [
                    {"name": name, "topic_id": peer.topic(name), "partition_indexes": [one[0] for one in partitions]}
                    for name, partitions in order
                ]

            if version < 8:
                return {"group_id": "repeats9", "topics": topics_of}
            names = ("repeats9", "repeats9", "nobody")
            return {
                "groups": lambda peer: [
                    {"group_id": name, "topics": topics_of(peer), "member_epoch": -1} for name in names
                ]
            }

        both.every(ApiKey.OFFSET_FETCH, f"fetch, {label}", own=fetched_by)
        gone = [{"name": name, "partitions": [{"partition_index": one[0]} for one in part]} for name, part in order]
        both.every(ApiKey.OFFSET_DELETE, f"delete, {label}", group_id="repeats3", topics=gone)
    repeated_admin(both)


def repeated_admin(both: Both) -> None:
    """Repeated names in requests of admin clients."""
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    both.every(
        ApiKey.LIST_OFFSETS,
        "no such level",
        replica_id=-1,
        isolation_level=5,
        topics=[{"name": "c2", "partitions": [asked] * 2}],
    )
    some = [{"topic": "c2", "partitions": [0, 0, 99, 99]}, {"topic": "c2", "partitions": [0]}]
    both.every(ApiKey.ELECT_LEADERS, "twice", topic_partitions=some, timeout_ms=9_000, election_type=0)
    both.every(ApiKey.DESCRIBE_LOG_DIRS, "twice", topics=some)
    for label, names in (("unknown", ["nope"] * 3), ("known", ["r5", "r6", "r5"]), ("nameless", [""] * 2)):
        grown = [{"name": name, "count": 3 + at, "assignments": None} for at, name in enumerate(names)]
        both.every(ApiKey.CREATE_PARTITIONS, f"twice, {label}", topics=grown, timeout_ms=9_000, validate_only=False)
    for version in versions(ApiKey.DELETE_TOPICS):
        names = ["r7", "nope", "r7", "nope", "r7"]
        both.ask(
            ApiKey.DELETE_TOPICS,
            version,
            "twice",
            topic_names=names,
            topics=[{"name": one} for one in names],
            timeout_ms=9_000,
        )
    by_both = lambda peer: [{"name": "r7"}, {"name": None, "topic_id": peer.topic("r7")}]  # noqa: E731
    both.ask(ApiKey.DELETE_TOPICS, 6, "by name and by id", topics=by_both, timeout_ms=9_000)
    both.ask(ApiKey.DELETE_TOPICS, 6, "ids twice", topics=lambda peer: by_both(peer)[1:] * 2, timeout_ms=9_000)
