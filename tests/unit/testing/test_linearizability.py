"""The checker accepts exactly the possible histories: compared with a slow one that tries every order."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.testing.linearizability import UNKNOWN, Call, counter, is_linearizable, register


def test_a_read_returns_earlier_writes():
    written = Call(("write", 1), None, 0, 1)
    assert is_linearizable([written, Call(("read",), 1, 2, 3)], register())
    assert not is_linearizable([written, Call(("read",), None, 2, 3)], register())


def test_concurrent_operations_may_have_either_order():
    written = Call(("write", 1), None, 0, 3)
    for seen in (None, 1):
        assert is_linearizable([written, Call(("read",), seen, 1, 2)], register())
    back = [Call(("read",), 1, 1, 2), Call(("read",), None, 2.5, 2.8)]
    assert not is_linearizable([written, *back], register())


def test_an_unknown_outcome_may_have_happened_or_not_or_late():
    unknown = Call(("add", 5), UNKNOWN, 0)
    for seen in ([0, 0], [0, 5], [5, 5]):
        reads = [Call(("read",), value, 1 + at, 1.5 + at) for at, value in enumerate(seen)]
        assert is_linearizable([unknown, *reads], counter())
    assert not is_linearizable([unknown, Call(("read",), 5, 1, 2), Call(("read",), 10, 3, 4)], counter())


def test_a_command_applied_twice_is_found():
    calls = [Call(("add", 1), 2, 0, 1), Call(("read",), 2, 2, 3)]
    assert not is_linearizable(calls, counter())


def slow(history, model):
    known = [call for call in history if call.answered is not UNKNOWN]
    unknown = [call for call in history if call.answered is UNKNOWN]
    for count in range(len(unknown) + 1):
        for some in itertools.combinations(unknown, count):
            if any(explains(order, model) for order in itertools.permutations([*known, *some])):
                return True
    return False


def explains(order, model):
    ends = [float("inf") if call.answered is UNKNOWN else call.ended for call in order]
    if any(ends[later] < order[earlier].begun for earlier, later in itertools.combinations(range(len(order)), 2)):
        return False
    state = model.initial
    for call in order:
        state, answer = model.step(state, call.asked)
        if call.answered is not UNKNOWN and call.answered != answer:
            return False
    return True


asked = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1)),
    st.just(("read",)),
    st.tuples(st.just("cas"), st.integers(0, 1), st.integers(0, 1)),
)


@st.composite
def calls(draw):
    what = draw(asked)
    answers = {"write": [None], "read": [0, 1], "cas": [True, False]}[what[0]]
    begun = draw(st.integers(0, 6))
    return Call(what, draw(st.sampled_from([*answers, UNKNOWN])), begun, begun + draw(st.integers(1, 4)))


@settings(max_examples=150, deadline=None)
@given(st.lists(calls(), max_size=5))
def test_it_agrees_with_trying_every_order(history):
    assert is_linearizable(history, register(0)) == slow(history, register(0))
