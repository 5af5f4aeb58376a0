"""Processes of klamm.raft are killed under load: clients' histories are valid for registers, locks and watches."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from klamm.testing.linearizability import UNKNOWN, Call, is_linearizable, register
from tests.support.raft_processes import NODE_IDS, RaftProcesses

SUPPORT = Path(__file__).parents[1] / "support"
CALLS_BETWEEN = 40
HOLDS_BETWEEN = 6
MANY = pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize("kills", [2, MANY])
def test_histories_of_killed_processes_are_linearizable(tmp_path, kills):
    begun, ended = {}, {}

    def on_event(node_id, event):
        match event:
            case ["begun", name, asked, at]:
                begun[name] = (tuple(asked), at)
            case ["ended", name, answer, at]:
                ended[name] = (answer, at)

    def wait_for_calls(processes):
        enough = len(ended) + CALLS_BETWEEN
        processes.wait_for(lambda: len(ended) >= enough, f"{enough} calls")

    with RaftProcesses(tmp_path, SUPPORT / "raft_register.py", on_event) as processes:
        for node_id in NODE_IDS:
            processes.start(node_id)
        for _ in range(kills):
            wait_for_calls(processes)
            victim, _ = processes.kill_leader()
            wait_for_calls(processes)
            processes.start(victim)
        wait_for_calls(processes)
    history = [Call(asked, *ended_or_unknown(ended.get(name), at)) for name, (asked, at) in begun.items()]
    assert sum(call.answered is not UNKNOWN for call in history) >= kills * CALLS_BETWEEN
    assert is_linearizable(history, register(""))


def ended_or_unknown(end, begun):
    return (UNKNOWN, begun) if end is None else (end[0], begun, end[1])


@pytest.mark.parametrize("kills", [1, MANY])
def test_killed_processes_share_no_lock_and_miss_no_change(tmp_path, kills):
    """The leader is killed with its session and perhaps its lock; successors take over, then it restarts."""
    held, released, added, seen = {}, {}, [], {node_id: [0] for node_id in NODE_IDS}

    def on_event(node_id, event):
        match event:
            case ["held", token, at]:
                held[token] = (node_id, at)
            case ["released", token, at]:
                released[token] = at
            case ["added", total]:
                added.append(total)
            case ["seen", position]:
                seen[node_id].append(position)

    def wait_for_holds(processes):
        enough = len(released) + HOLDS_BETWEEN
        processes.wait_for(lambda: len(released) >= enough, f"{enough} times that the lock is held")

    deaths = []
    with RaftProcesses(tmp_path, SUPPORT / "raft_tree.py", on_event) as processes:
        for node_id in NODE_IDS:
            processes.start(node_id, "0")
        for _ in range(kills):
            wait_for_holds(processes)
            victim, at = processes.kill_leader()
            deaths.append((victim, at))
            wait_for_holds(processes)
            processes.start(victim, str(seen[victim][-1]))
        wait_for_holds(processes)
        last = max(positions[-1] for positions in seen.values())
        processes.wait_for(lambda: min(positions[-1] for positions in seen.values()) >= last, f"change {last}")

    ends = {token: released.get(token) or death_after(deaths, *held[token]) for token in held}
    tokens = sorted(held)
    for earlier, later in itertools.pairwise(tokens):
        assert ends[earlier] <= held[later][1], f"{earlier} and {later} were held at one time"
    assert len(added) == len(set(added))
    for positions in seen.values():
        assert positions == list(range(len(positions)))


def death_after(deaths, node_id, begun):
    """When the holder died; holders that ran until the end of the test held it last."""
    return next((at for victim, at in deaths if victim == node_id and at >= begun), begun)
