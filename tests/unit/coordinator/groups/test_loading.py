"""The state that a shard loads from a log: state == fold(log), foreign groups, transactions, unloading."""

from __future__ import annotations

import json
import logging
import lzma
from pathlib import Path

import pytest

from klamm.coordinator.groups.config import GroupConfig
from klamm.coordinator.groups.records import (
    OffsetAndMetadata,
    decode,
    group_key,
    offset_key,
    offset_value,
)
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.groups.states import GroupState
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import NO_PRODUCER_ID, LoadedRecord, LogRecord
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import FetchGroup, FetchTopic

from .fold import assert_same, snapshot
from .harness import GROUP, SESSION_MS, Room

GOLDEN = Path(__file__).parents[3] / "golden" / "group-records.json.xz"


def test_a_stable_group_continues_after_a_restart() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    again = room.reloaded()
    assert again.group.state is GroupState.STABLE
    assert again.heartbeat(first.member_id, 1) is ErrorCode.NONE
    assert again.answers[again.sync_later(second)].assignment == f"to {second.member_id}".encode()
    assert again.group.topics == {"topic"}
    assert_same(room, again)


def test_sessions_start_again_after_a_restart() -> None:
    room = Room()
    (joined,) = room.make_stable()
    again = room.reloaded()
    again.pass_time(SESSION_MS - 1)
    assert joined.member_id in again.group.members
    again.pass_time(1)
    assert again.group.state is GroupState.EMPTY


def test_a_restart_during_a_rebalance_restores_the_previous_generation() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    room.join_later(first.member_id)
    again = room.reloaded()
    assert again.group.state is GroupState.STABLE
    assert again.group.generation_id == 1
    assert again.heartbeat(second.member_id, 1) is ErrorCode.NONE


def test_a_member_that_is_known_by_its_record_can_rejoin_with_all_its_protocols() -> None:
    room = Room()
    (joined,) = room.make_stable()
    again = room.reloaded()
    ticket = again.join_later(joined.member_id)
    assert again.answers[ticket].generation_id == 2


def test_a_group_above_a_lowered_limit_rebalances_when_it_is_loaded() -> None:
    room = Room()
    room.make_stable(count=3)
    again = Room(GroupConfig(group_max_size=2), room.log)
    assert again.group.state is GroupState.PREPARING_REBALANCE


def test_tombstones_remove_groups_and_offsets() -> None:
    room = Room()
    room.commit_offset(1)
    log: list[LogRecord] = [*room.log, (offset_key(GROUP, "topic", 0), None), (group_key(GROUP), None)]
    assert not Room(log=log).shard.groups


KEY = offset_key(GROUP, "topic", 0)


def commit(at: int, offset: int, producer_id: int = NO_PRODUCER_ID) -> LoadedRecord:
    """The record at offset `at` of the log: `offset` is committed."""
    return LoadedRecord(at, KEY, offset_value(OffsetAndMetadata(offset, -1, "", 0)), producer_id)


def transaction_end(producer_id: int, *, is_commit: bool) -> LoadedRecord:
    return LoadedRecord(100, bytes([0, is_commit]), b"", producer_id, is_control=True)


def fetched(shard: GroupShard, *, stable: bool = True) -> tuple[int, int]:
    request = FetchGroup(GROUP, (FetchTopic("topic", bytes(16), (0,)),))
    (effect,) = shard.on_offset_fetch(0, 1, request, require_stable=stable)
    partition = effect.response.topics[0].partitions[0]  # type: ignore[union-attr]
    return partition.committed_offset, partition.error_code


def new_shard() -> GroupShard:
    return GroupShard(GroupConfig(), lambda: "x")


def test_a_transactions_offset_counts_when_it_is_committed() -> None:
    shard = new_shard()
    shard.replay(commit(0, 1))
    shard.replay(commit(1, 2, 77))
    assert fetched(shard) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(shard, stable=False) == (1, 0)
    shard.replay(transaction_end(77, is_commit=True))
    assert fetched(shard) == (2, 0)


def test_an_aborted_transactions_offset_never_counts() -> None:
    shard = new_shard()
    shard.replay(commit(1, 2, 77))
    shard.replay(transaction_end(77, is_commit=False))
    assert fetched(shard) == (-1, 0)
    assert list(shard.groups) == [GROUP]


def test_an_older_transaction_does_not_replace_a_newer_commit() -> None:
    """A transactional commit that was written before a plain commit does not replace it."""
    shard = new_shard()
    shard.replay(commit(1, 2, 77))
    shard.replay(commit(2, 3))
    shard.replay(transaction_end(77, is_commit=True))
    assert fetched(shard) == (3, 0)


def test_a_tombstone_removes_a_pending_offset() -> None:
    shard = new_shard()
    shard.replay(commit(1, 2, 77))
    shard.replay(LoadedRecord(2, KEY, None))
    shard.replay(transaction_end(77, is_commit=True))
    assert fetched(shard) == (-1, 0)


def test_an_open_transaction_keeps_offsets_and_group() -> None:
    shard = GroupShard(GroupConfig(offsets_retention_minutes=0, offsets_retention_check_interval_ms=1), lambda: "x")
    shard.replay(commit(0, 1))
    shard.replay(commit(1, 2, 77))
    shard.on_loaded(1_000_000)
    assert HostedShard(0, 0, shard).on_timer(2_000_000) == []
    assert GROUP in shard.groups


def test_unknown_record_types_are_skipped_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    shard = new_shard()
    with caplog.at_level(logging.WARNING, "klamm.coordinator"):
        shard.replay(LoadedRecord(0, b"\0\x2a", b""))
        shard.on_loaded(0)
    assert "unknown type 42" in caplog.text


def test_waiting_requests_fail_when_the_partition_moves() -> None:
    room = Room()
    first, second = room.make_stable(count=2)
    joining = room.join_later(first.member_id)
    room.holds_appends = True
    committing = room.commit_later({("topic", 0): 1}, generation_id=1, member_id=second.member_id)
    room.in_flight.clear()
    room.take(room.hosted.on_unloaded(room.now_ms))
    assert room.answers[joining].error_code is ErrorCode.NOT_COORDINATOR
    assert room.answers[committing] == ErrorCode.NOT_COORDINATOR
    assert room.group.state is GroupState.DEAD


def test_a_waiting_sync_fails_too() -> None:
    room = Room()
    _, second = room.begin(count=2)
    ticket = room.sync_later(second)
    room.take(room.hosted.on_unloaded(room.now_ms))
    assert room.answers[ticket].error_code is ErrorCode.NOT_COORDINATOR


def test_a_first_join_that_awaits_its_record_fails_too() -> None:
    """When the partition moves, the record of a new group fails after the group is already dead."""
    room = Room()
    room.holds_appends = True
    ticket = room.join_later(version=3)
    room.in_flight.clear()
    room.take(room.hosted.on_unloaded(room.now_ms))
    assert room.answers[ticket].error_code is ErrorCode.NOT_COORDINATOR


def test_apache_kafkas_log_is_loaded() -> None:
    """The golden log: classic groups are live, other kinds are kept, transactions are applied."""
    shards = {}
    for partition, rows in json.loads(lzma.decompress(GOLDEN.read_bytes())).items():
        shard = shards[partition] = new_shard()
        for row in rows:
            value = None if row["value"] is None else bytes.fromhex(row["value"])
            # The engine passes on the type of a control record's key without the preceding version.
            key = bytes.fromhex(row["key"])[2 if row["is_control"] else 0 :]
            shard.replay(LoadedRecord(row["offset"], key, value, row["producer_id"], row["is_control"]))
        shard.on_loaded(0)
    groups = {group_id: group for shard in shards.values() for group_id, group in shard.groups.items()}
    assert set(groups) == {"classic-dynamic", "classic-static", "simple"}
    assert groups["classic-dynamic"].state is GroupState.EMPTY
    assert groups["classic-static"].state is GroupState.STABLE
    assert set(groups["classic-static"].static_members) == {"i0", "i1"}
    assert groups["classic-static"].topics == frozenset({"orders"})
    modern = {group_id: group for shard in shards.values() for group_id, group in shard.modern_groups.items()}
    assert {group_id: group.kind for group_id, group in modern.items()} == {
        "consumer-kip848": "consumer",
        "share": "share",
    }
    simple = next(shard.offsets_of("simple") for shard in shards.values() if shard.offsets_of("simple"))
    offsets = {(topic, part): commit.offset for topic, parts in simple.items() for part, commit in parts.items()}
    assert offsets == {("orders", 0): 42, ("payments", 0): 7, ("orders", 1): 100}


def test_the_snapshot_shows_differences() -> None:
    one, other = Room(), Room()
    one.commit_offset(1)
    other.commit_offset(2)
    assert snapshot(one) != snapshot(other)
    assert decode(offset_key("g", "t", 0), offset_value(OffsetAndMetadata(1, -1, "", 0)))
