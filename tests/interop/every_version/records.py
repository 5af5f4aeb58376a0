"""Produce, fetch, look up by time, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm import records
from klamm.protocol.api_key import ApiKey
from tests.interop.every_version.topics import new_topic
from tests.interop.peers import Both, Peer, versions


def batch(count: int = 3, **fields: Any) -> bytes:
    return records.encode([records.NewRecord(b"v%d" % at, b"k%d" % at, 1_000 + at) for at in range(count)], **fields)


def produces(both: Both) -> None:
    """Produce, InitProducerId, DescribeProducers."""
    names = [f"p{version}" for version in versions(ApiKey.PRODUCE)]
    extra = [new_topic("idem"), new_topic("small", max_message_bytes="100"), new_topic("empty")]
    extra += [new_topic("times", message_timestamp_type="LogAppendTime"), new_topic("keys", cleanup_policy="compact")]
    both.ask(ApiKey.CREATE_TOPICS, 7, "for produces", topics=[*map(new_topic, names), *extra], timeout_ms=9_000)
    both.learn_topics()
    whole = batch()
    damaged, old, new = (
        whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for at, flip in ((len(whole) - 1, 1), (16, 3), (16, 1))
    )
    without_key = records.encode([records.NewRecord(b"x", b"k"), records.NewRecord(b"x")])
    for version in versions(ApiKey.PRODUCE):
        own = f"p{version}"
        for label, name, data in (
            *((f"codec {codec}", own, batch(compression=codec)) for codec in records.CODECS),
            ("damaged", own, damaged),
            ("magic 1", own, old),
            ("magic 3", own, new),
            ("nothing", own, b""),
            ("two batches", own, whole + whole),
            ("cut", own, whole[:-3]),
            ("too large", "small", batch(20)),
            ("without key", "keys", without_key),
            ("append time", "times", whole),
            ("unknown topic", "nope", whole),
        ):
            produce(both, version, label, name, 0, data)
        produce(both, version, "acks 1", own, 1, whole, acks=1)
        produce(both, version, "acks 2", own, 1, whole, acks=2)
        produce(both, version, "unknown partition", own, 9, whole)
        both.ask(ApiKey.PRODUCE, version, "nothing at all", acks=-1, timeout_ms=9_000, topic_data=[])
    sequences = [0, 0, 3, 9, 6, 9, 12, 15, 18, 0, 3, 18]
    for at, sequence in enumerate(sequences):
        idempotent(both, f"sequence {sequence} at {at}", sequence)
    for epoch, sequence in ((1, 3), (1, 0), (0, 21), (1, 3)):
        idempotent(both, f"epoch {epoch}, sequence {sequence}", sequence, epoch)
    idempotent(both, "before the end of numbers", 2**31 - 3, producer_id=5_000)
    idempotent(both, "over the end of numbers", 0, producer_id=5_000)
    both.every(ApiKey.DESCRIBE_PRODUCERS, "after", topics=[{"name": "idem", "partition_indexes": [0, 1, 77]}])
    both.every(
        ApiKey.DESCRIBE_PRODUCERS,
        "bad names",
        topics=[{"name": name, "partition_indexes": [0]} for name in ("nope", "a b")],
    )
    both.until(22, 4, {"producer_id": -1, "producer_epoch": -1})
    both.every(ApiKey.INIT_PRODUCER_ID, "new", producer_id=-1, producer_epoch=-1)
    both.every(ApiKey.INIT_PRODUCER_ID, "again", producer_id=4, producer_epoch=3)
    both.every(
        ApiKey.INIT_PRODUCER_ID, "empty transactional id", transactional_id="", producer_id=-1, producer_epoch=-1
    )


def idempotent(both: Both, label: str, sequence: int, epoch: int = 0, producer_id: int = 4_000) -> None:
    data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    produce(both, 9, label, "idem", 0, data)


def produce(  # noqa: PLR0917
    both: Both, version: int, label: str, name: str, index: int, data: bytes, acks: int = -1
) -> None:
    def topic_data(peer: Peer) -> list[dict[str, Any]]:
        return [
            {"name": name, "topic_id": peer.topic(name), "partition_data": [{"index": index, "records": data}]},
        ]

    both.ask(ApiKey.PRODUCE, version, label, acks=acks, timeout_ms=9_000, topic_data=topic_data)


def offsets(both: Both) -> None:
    """ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

    def listed(name: str, index: int, timestamp: int, epoch: int = -1) -> dict[str, Any]:
        partition = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
        return {"name": name, "partitions": [partition]}

    for isolation in (0, 1):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 999, 1_001, 5_000):
            for name in ("p3", "empty"):
                asked = {"topics": [listed(name, 0, timestamp)], "isolation_level": isolation}
                both.every(
                    ApiKey.LIST_OFFSETS,
                    f"{timestamp} of {name}, {isolation=}",
                    replica_id=-1,
                    timeout_ms=9_000,
                    **asked,
                )
    for name, index in (("p3", 9), ("nope", 0), ("a b", 0)):
        both.every(
            ApiKey.LIST_OFFSETS, f"{name}-{index}", replica_id=-1, topics=[listed(name, index, -1)], timeout_ms=9_000
        )
    for epoch in (0, 9):
        both.every(
            ApiKey.LIST_OFFSETS, f"epoch {epoch}", replica_id=-1, topics=[listed("p3", 0, -1, epoch)], timeout_ms=9_000
        )
        for wanted in (0, 5, -1):
            partition = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": wanted}
            asked = {"topics": [{"topic": "p3", "partitions": [partition]}], "replica_id": -1}
            both.every(ApiKey.OFFSET_FOR_LEADER_EPOCH, f"end of {wanted}, epoch {epoch}", **asked)
    for name, index, offset in (
        *(("p5", 0, offset) for offset in (1, 4, 2, -1, 9_999, -2)),
        *(("keys", 0, 0), ("nope", 0, 0), ("a b", 0, 0), ("p5", 9, 0)),
    ):
        partition = {"partition_index": index, "offset": offset}
        asked = {"topics": [{"name": name, "partitions": [partition]}], "timeout_ms": 9_000}
        both.every(ApiKey.DELETE_RECORDS, f"{name}-{index} to {offset}", **asked)
    both.every(ApiKey.LIST_OFFSETS, "after", replica_id=-1, topics=[listed("p5", 0, -2)], timeout_ms=9_000)


def fetches(both: Both) -> None:
    """Fetch, and its sessions."""

    def at(name: str, index: int, offset: int, **more: int) -> Callable[[Peer], list[dict[str, Any]]]:
        partition = {"partition": index, "fetch_offset": offset, "current_leader_epoch": -1, "last_fetched_epoch": -1}
        wanted = partition | {"log_start_offset": -1, "partition_max_bytes": 1 << 20} | more
        return lambda peer: [{"topic": name, "topic_id": peer.topic(name), "partitions": [wanted]}]

    def fetch(label: str, topics: Any, **more: Any) -> None:
        limits = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
        asked = {"replica_id": -1, "session_id": 0, "session_epoch": -1, "topics": topics, **limits, **more}
        both.every(ApiKey.FETCH, label, **asked)

    fetch("the start", at("p4", 0, 0))
    fetch("the middle", at("p4", 0, 4))
    fetch("the end", at("p4", 1, 3))
    fetch("as a replica", at("p4", 0, 0), below=16, replica_id=5, replica_state={"replica_id": 5, "replica_epoch": -1})
    fetch("an epoch that never was", at("p4", 0, 3, last_fetched_epoch=7))
    fetch("committed only", at("p4", 0, 0), isolation_level=1)
    fetch("behind the end", at("p4", 0, 9_999))
    fetch("a negative offset", at("p4", 0, -1))
    fetch("before the start", at("p5", 0, 0))
    fetch("one byte", at("p4", 0, 0), max_bytes=1)
    fetch("one byte of a partition", at("p4", 0, 0, partition_max_bytes=1))
    fetch("an epoch that is not yet", at("p4", 0, 0, current_leader_epoch=5))
    fetch("an epoch that is", at("p4", 0, 3, last_fetched_epoch=0))
    small = {"partition_max_bytes": 1}
    fetch("one batch of two partitions", lambda peer: at("p4", 0, 0, **small)(peer) + at("p3", 0, 0, **small)(peer))
    fetch("unknown topic", at("nope", 0, 0))
    fetch("unknown partition", at("p4", 9, 0))
    fetch("nothing", [])
    fetch("an unknown session", at("p4", 0, 0), since=7, session_id=12_345, session_epoch=1)
    fetch("a session that is none", at("p4", 0, 0), since=7, session_epoch=3)
    for version in versions(ApiKey.FETCH, 7):
        limits = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1}
        both.ask(
            ApiKey.FETCH, version, "open a session", topics=at("p4", 0, 0), session_id=0, session_epoch=0, **limits
        )
        kept = {peer: peer.last["session_id"] for peer in (both.kafka, both.klamm)}
        limits |= {"session_id": lambda peer, kept=kept: kept[peer]}
        both.ask(ApiKey.FETCH, version, "go on with it", topics=[], session_epoch=1, **limits)
        both.ask(ApiKey.FETCH, version, "add to it", topics=at("p4", 1, 0), session_epoch=2, **limits)
        forgotten = {
            "forgotten_topics_data": lambda peer: [{"topic": "p4", "topic_id": peer.topic("p4"), "partitions": [0]}]
        }
        both.ask(ApiKey.FETCH, version, "take from it", topics=[], session_epoch=3, **limits, **forgotten)
        both.ask(ApiKey.FETCH, version, "a wrong epoch", topics=[], session_epoch=9, **limits)
        both.ask(ApiKey.FETCH, version, "close it", topics=[], session_epoch=-1, **limits)
