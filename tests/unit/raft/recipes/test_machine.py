"""The tree as a fold of its commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.raft.recipes import errors, machine
from klamm.raft.recipes.errors import ChangesLostError
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import Change, checked_path
from klamm.raft.recipes.operations import SHAPES
from klamm.raft.recipes.packed import PackedError, pack, unpack

PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/", "/q/item-", "bad", "/a//b"])
SESSIONS = st.sampled_from(["s", "t"])
OPERATIONS = st.one_of(
    st.tuples(st.just("open"), SESSIONS, st.just(1000)),
    st.tuples(st.just("renew"), st.lists(SESSIONS, max_size=2)),
    st.tuples(st.just("end"), SESSIONS),
    st.tuples(st.just("expire"), SESSIONS, st.integers(0, 2)),
    st.tuples(st.just("create"), PATHS, st.binary(max_size=3), st.none() | SESSIONS, st.booleans(), st.booleans()),
    st.tuples(st.just("set"), PATHS, st.binary(max_size=3), st.none() | st.integers(0, 2)),
    st.tuples(st.just("delete"), PATHS, st.none() | st.integers(0, 2)),
    st.tuples(st.just("add"), PATHS, st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("pop"), PATHS),
    st.tuples(st.just("enter"), PATHS, SESSIONS, SESSIONS, st.integers(1, 2)),
)
COMMANDS = st.lists(OPERATIONS.map(pack) | st.binary(max_size=12), max_size=40)


def fold(tree, commands):
    return [tree.apply(command) for command in commands]


def held(tree):
    return tree.snapshot()()


@given(COMMANDS, st.integers(0, 40))
def test_replay_and_a_snapshot_at_any_point_give_the_same_state(commands, cut):
    live, before, restored = TreeMachine(), TreeMachine(), TreeMachine()
    answers = fold(live, commands)
    fold(before, commands[:cut])
    restored.restore(held(before))
    assert fold(restored, commands[cut:]) == answers[cut:]
    assert held(restored) == held(live)


@given(COMMANDS)
def test_a_refused_command_changes_nothing_and_an_applied_one_is_reported(commands):
    tree = TreeMachine()
    for command in commands:
        before, position = held(tree), tree.position
        is_done = unpack(tree.apply(command))[0]
        if not is_done:
            assert held(tree) == before
        assert [change.position for change in tree.changes_since(position)] == [*range(position + 1, tree.position + 1)]


@given(COMMANDS)
def test_ephemeral_nodes_are_their_sessions_and_have_no_children(commands):
    tree = TreeMachine()
    fold(tree, commands)
    seen = {}

    def walk(path):
        node = tree.get(path)
        if node.owner is not None:
            assert not node.children
            seen.setdefault(node.owner, set()).add(path)
        for name in node.children:
            walk(f"{path.rstrip('/')}/{name}")

    walk("/")
    assert seen == {name: set(session.owned) for name, session in tree.sessions.items() if session.owned}


def run(tree, *operation):
    is_done, *rest = unpack(tree.apply(pack(operation)))
    if not is_done:
        raise errors.ERRORS[rest[0]](rest[1])
    return rest[0]


def test_nodes():
    tree = TreeMachine()
    assert run(tree, "create", "/a", b"1", None, False, False) == "/a"
    with pytest.raises(errors.NodeExistsError):
        run(tree, "create", "/a", b"", None, False, False)
    with pytest.raises(errors.NoNodeError):
        run(tree, "create", "/b/c", b"", None, False, False)
    assert run(tree, "create", "/b/c/d", b"", None, False, True) == "/b/c/d"
    assert run(tree, "set", "/a", b"2", 0) == 1
    with pytest.raises(errors.BadVersionError, match="version 1, not 0"):
        run(tree, "set", "/a", b"3", 0)
    with pytest.raises(errors.NotEmptyError):
        run(tree, "delete", "/b", None)
    assert [run(tree, "create", "/b/n-", b"", None, True, False) for _ in range(2)] == [
        "/b/n-0000000000",
        "/b/n-0000000001",
    ]
    node = tree.get("/a")
    assert (node.data, node.version, node.created, node.modified) == (b"2", 1, 1, 5)
    assert tree.changes_since(4, "/a") == [Change(5, "changed", "/a")]
    assert [change.path for change in tree.changes_since(5, "/b")] == ["/b/n-0000000000", "/b/n-0000000001"]


def test_a_sequence_skips_existing_names():
    tree = TreeMachine()
    run(tree, "create", "/q/n-0000000000", b"taken", None, False, True)
    assert run(tree, "create", "/q/n-", b"", None, True, False) == "/q/n-0000000001"
    assert tree.get("/q/n-0000000000").data == b"taken"


def test_a_renewal_before_the_decision_saves_the_session():
    tree = TreeMachine()
    run(tree, "open", "s", 1000)
    run(tree, "create", "/mine", b"", "s", False, False)
    assert run(tree, "renew", ["s", "other"]) == [True, False]
    assert run(tree, "expire", "s", 0) is False
    assert tree.exists("/mine")
    assert run(tree, "expire", "s", 1) is True
    assert not tree.exists("/mine")
    assert tree.changes_since(1) == [Change(2, "deleted", "/mine")]
    with pytest.raises(errors.SessionLostError):
        run(tree, "create", "/mine", b"", "s", False, False)


def test_discarded_changes_are_an_error_instead_of_a_gap(monkeypatch):
    monkeypatch.setattr(machine, "CHANGES_MAX", 3)
    tree = TreeMachine()
    for number in range(5):
        run(tree, "create", f"/{number}", b"", None, False, False)
    assert len(tree.changes_since(2)) == 3
    with pytest.raises(ChangesLostError, match="3 is the oldest"):
        tree.changes_since(1)
    assert tree.changes_since(99) == []


def test_counters_and_queues():
    tree = TreeMachine()
    assert [run(tree, "add", "/n/counter", number) for number in (5, -2)] == [5, 3]
    with pytest.raises(errors.TreeError, match="beyond"):
        run(tree, "add", "/n/counter", 2**63 - 1)
    assert run(tree, "pop", "/q") is None
    for item in (b"a", b"b"):
        run(tree, "create", "/q/item-", item, None, True, True)
    assert [run(tree, "pop", "/q") for _ in range(3)] == [
        ["item-0000000000", b"a"],
        ["item-0000000001", b"b"],
        None,
    ]


def test_every_operation_has_a_shape():
    assert TreeMachine().operations == SHAPES.keys()


@pytest.mark.parametrize("path", ["", "a", "//", "/a/", "/a//b", "/\0"])
def test_invalid_paths_are_named(path):
    with pytest.raises(ValueError, match="no path"):
        checked_path(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_packed_values_round_trip(value):
    assert unpack(pack(value)) == value


@given(st.binary(max_size=40))
def test_hostile_bytes_are_refused_or_are_values(data):
    try:
        value = unpack(data)
    except PackedError:
        return
    assert pack(value) == data


@given(st.binary(max_size=40) | VALUES.map(pack))
def test_hostile_snapshots_are_refused(data):
    with pytest.raises(PackedError):
        TreeMachine().restore(data)
