"""Which topics and groups are selected, their names, and what is created on the target."""

from __future__ import annotations

import pytest

from klamm.admin.configs import Entry
from klamm.admin.topics import Partition, Topic
from klamm.pipelines.mirror import Naming, SelectionError, groups, topics
from klamm.pipelines.mirror.groups import forward, translated
from klamm.pipelines.mirror.topics import Changes, differing, plan, wanted_configs


def test_names_and_full_matches_of_patterns_are_selected() -> None:
    chosen = topics(names=["a.b"], patterns=["orders-.*", "x|y"], excluded=["orders-old.*", "a.b"])
    assert [name for name in ("a.b", "orders-1", "x", "y") if not chosen.takes(name)] == []
    assert [name for name in ("a-b", "a.bc", "orders-old", "my-orders-1", "xy", "") if chosen.takes(name)] == []


def test_internal_topics_are_never_selected() -> None:
    chosen = topics(patterns=[".*"])
    internal = ["__consumer_offsets", ".hidden", "mm2-offset-syncs.b.internal", "b.checkpoints.internal"]
    assert [name for name in [*internal, "klamm-mirror.abc.internal"] if chosen.takes(name)] == []
    assert chosen.takes("mm2")
    with pytest.raises(SelectionError, match="topic '__consumer_offsets' is internal to its cluster"):
        topics(names=["__consumer_offsets"])


def test_console_consumers_are_selected_by_name_only() -> None:
    assert not groups(patterns=[".*"]).takes("console-consumer-1")
    assert groups(names=["console-consumer-1"]).takes("console-consumer-1")


def test_an_invalid_pattern_is_reported() -> None:
    with pytest.raises(SelectionError, match=r"'\(' is no regular expression"):
        topics(patterns=["("])


def test_copies_have_other_names() -> None:
    naming = Naming("eu.", {"a": "b"})
    assert naming.targets(["a", "c"]) == {"a": "b", "c": "eu.c"}
    with pytest.raises(SelectionError, match="topics a and b would both be written to b: rename one of them"):
        Naming("", {"a": "b"}).targets(["a", "b"])
    with pytest.raises(SelectionError, match="topic a has no name on the target: give TOPIC=NAME"):
        Naming("", {"a": ""})


def topic(name: str, partitions: int) -> Topic:
    return Topic(name, None, False, tuple(Partition(number, 1, (1,), (1,)) for number in range(partitions)))


def test_missing_topics_are_created_and_nothing_is_deleted() -> None:
    source = [topic("new", 2), topic("grown", 3), topic("same", 1), topic("shrunk", 1)]
    there = {name: topic(name, 2) for name in ("eu.grown", "eu.shrunk")} | {"eu.same": topic("eu.same", 1)}
    names = {one.name: f"eu.{one.name}" for one in source}
    assert plan(source, names, there) == Changes({"eu.new": source[0]}, {"eu.grown": 3})


def entry(name: str, value: str, source: str = "set on the topic", **other: bool) -> Entry:
    flags = {"is_read_only": False, "is_sensitive": False} | other
    return Entry(name, value, source, source == "default", flags["is_read_only"], flags["is_sensitive"], None)


def test_the_copied_configs_are_those_of_mirror_maker() -> None:
    entries = [
        entry("retention.ms", "5"),
        entry("segment.ms", "6", "set on all brokers"),
        entry("flush.ms", "7", "server.properties"),
        entry("cleanup.policy", "delete", "default"),
        entry("min.insync.replicas", "2"),
        entry("message.timestamp.type", "LogAppendTime"),
        entry("secret", "x", is_sensitive=True),
        entry("fixed", "x", is_read_only=True),
        entry("remote.storage.enable", "true"),
    ]
    wanted = wanted_configs(entries, [r"remote\..*"])
    assert wanted == {"retention.ms": "5", "segment.ms": "6", "cleanup.policy": None}
    there = [entry("retention.ms", "4"), entry("segment.ms", "6"), entry("cleanup.policy", "compact")]
    assert differing(wanted, there) == {"retention.ms": "5", "cleanup.policy": None}
    assert differing(wanted, [entry("retention.ms", "5"), entry("segment.ms", "6")]) == {}


def test_commits_are_translated_if_there_are_offset_syncs() -> None:
    known = {("a", 0, 10): ("eu.a", 7)}
    committed = {("a", 0): 10, ("a", 1): 3, ("other", 0): 1}
    assert translated(committed, lambda *at: known.get(at)) == {("eu.a", 0): 7}


def test_groups_only_advance_and_not_beyond_the_log() -> None:
    wanted = {("t", number): 5 for number in range(4)}
    there = {("t", 0): 5, ("t", 1): 9, ("t", 2): 4}
    ends = {("t", 0): 9, ("t", 1): 9, ("t", 2): 5, ("t", 3): 4}
    assert forward(wanted, there, ends) == {("t", 2): 5}
