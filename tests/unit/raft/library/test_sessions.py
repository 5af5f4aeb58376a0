"""The replicated state is a function of its log: replayed, restored at any point, with repeated commands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.raft import CommandRefusedError
from klamm.raft.library import calls, entries, sessions
from klamm.raft.library.sessions import CommandStatus, Outcome, ReplicatedState, StateDamagedError

CLIENTS = [bytes([number]) * entries.CLIENT_BYTES for number in (1, 2, 3)]


class Journal:
    def __init__(self):
        self.data = b""

    def apply(self, command):
        if command.startswith(b"no"):
            raise CommandRefusedError(command.decode("latin-1"))
        self.data += command
        return self.data[-3:]

    def snapshot(self):
        return self.data

    def restore(self, data):
        self.data = data


@st.composite
def logs(draw):
    """Possible commands of clients in some order, some repeated, some without a session."""
    log, sequences = [], dict.fromkeys(CLIENTS, 0)
    for _ in range(draw(st.integers(0, 25))):
        client = draw(st.sampled_from(CLIENTS))
        what = draw(st.sampled_from(["open", "new", "new", "new", "again"]))
        if what == "open":
            log.append(entries.encode_open(client))
            continue
        sequences[client] += what == "new"
        sequence = draw(st.integers(max(sequences[client] - 2, 0), sequences[client]))
        answered = draw(st.integers(max(sequence - 3, 0), sequence))
        payload = draw(st.sampled_from([b"a", b"bc", b"no", b"", b"d"]))
        log.append(entries.encode_command(client, sequence, answered, payload))
    return log


def fold(state, log):
    return [state.apply(value) for value in log]


def held(state):
    return state.hold()()


@given(logs(), st.integers(0, 25))
def test_a_snapshot_at_any_point_and_the_rest_of_the_log_give_the_same_state(log, cut):
    live, before, restored = (ReplicatedState(Journal()) for _ in range(3))
    outcomes = fold(live, log)
    fold(before, log[:cut])
    restored.restore(held(before))
    assert held(restored) == held(before)
    assert fold(restored, log[cut:]) == outcomes[cut:]
    assert held(restored) == held(live)


@given(logs())
def test_repeated_commands_change_nothing(log):
    once, twice = ReplicatedState(Journal()), ReplicatedState(Journal())
    outcomes = fold(once, log)
    for value, outcome in zip(log, outcomes, strict=True):
        twice.apply(value)
        again = twice.apply(value)
        assert again is None or again.outcome in (None, outcome.outcome)
    assert twice.machine.data == once.machine.data


def command(sequence, payload, *, answered_below=0, client=CLIENTS[0]):
    return entries.encode_command(client, sequence, answered_below, payload)


def test_a_command_is_applied_once_and_its_result_kept_until_acknowledged():
    state = ReplicatedState(Journal())
    assert state.apply(command(1, b"a")).outcome == Outcome(CommandStatus.NO_SESSION, b"")
    state.apply(entries.encode_open(CLIENTS[0]))
    assert [state.apply(command(1, b"a")).outcome for _ in range(2)] == [Outcome(CommandStatus.APPLIED, b"a")] * 2
    assert state.apply(command(2, b"nope")).outcome == Outcome(CommandStatus.REFUSED, b"nope")
    assert state.outcome_of(CLIENTS[0], 1) == Outcome(CommandStatus.APPLIED, b"a")
    state.apply(command(3, b"b", answered_below=3))
    assert state.outcome_of(CLIENTS[0], 1) is None
    assert state.apply(command(1, b"a")).outcome is None
    assert state.machine.data == b"ab"


def test_without_the_results_a_command_would_count_twice(monkeypatch):
    """Without the guard against repeated commands."""

    class Forgetful(dict):
        def get(self, sequence):
            return None

    begin = sessions._Session.__init__

    def forget(self, answered_below=0):
        begin(self, answered_below)
        self.results = Forgetful()

    monkeypatch.setattr(sessions._Session, "__init__", forget)
    state = ReplicatedState(Journal())
    sent = entries.encode_command(CLIENTS[0], 0, 0, b"a")
    fold(state, [entries.encode_open(CLIENTS[0]), sent, sent])
    assert state.machine.data == b"aa"


def test_the_longest_idle_session_is_evicted_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    state = ReplicatedState(Journal())
    for client in CLIENTS[:2]:
        state.apply(entries.encode_open(client))
    state.apply(command(1, b"a"))
    state.apply(entries.encode_open(CLIENTS[2]))
    assert [state.has_session(client) for client in CLIENTS] == [True, False, True]


@pytest.mark.parametrize("result", [None, "text", 7])
def test_a_result_other_than_bytes_is_a_fault(result):
    journal = Journal()
    journal.apply = lambda command: result
    state = ReplicatedState(journal)
    state.apply(entries.encode_open(CLIENTS[0]))
    with pytest.raises(TypeError, match="must return bytes"):
        state.apply(command(1, b"a"))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_invalid_snapshots_are_rejected(values):
    with pytest.raises(StateDamagedError):
        ReplicatedState(Journal()).restore(values)


@given(st.binary(max_size=80))
def test_foreign_entries_are_refused(value):
    try:
        entry = entries.decode(value)
    except entries.EntryError:
        return
    again = entries.encode_open(*entry) if isinstance(entry, entries.OpenSession) else entries.encode_command(*entry)
    assert again == value


@settings(max_examples=50)
@given(
    st.sampled_from(calls.Kind),
    st.text(max_size=5),
    st.lists(st.binary(max_size=20), max_size=4),
    st.integers(0, 2**31 - 1),
)
def test_calls_round_trip(kind, cluster, records, epoch):
    call = calls.Call(
        kind, cluster, records if kind is calls.Kind.EXECUTE else (), epoch if kind is calls.Kind.CONFIRM else 0
    )
    assert calls.decode_call(calls.encode_call(call)) == call
    for status in calls.Status:
        reply = calls.Reply(status, epoch)
        assert calls.decode_reply(calls.encode_reply(reply)) == reply


@given(st.binary(max_size=40))
def test_hostile_calls_are_refused(data):
    for read, write in ((calls.decode_call, calls.encode_call), (calls.decode_reply, calls.encode_reply)):
        try:
            found = read(data)
        except calls.CallError:
            continue
        assert read(write(found)) == found
