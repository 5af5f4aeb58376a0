"""Whether what clients saw of one object can be true: a checker of linearizability (Herlihy, Wing 1990).

A history is a list of calls, each with the times between which it took effect. It is linearizable when the calls can be
put in one order in which none stands before another that had ended when it began, and in which the model gives every
call the answer that it got. A call without an answer took effect at any time after its beginning, or never. The search
is Wing and Gong's with Lowe's memory of what was tried: exponential in calls at one time, so keep those few, and check
each object of a store by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)

UNKNOWN = object()
"""The answer of a call whose outcome is unknown."""


class Call(NamedTuple):
    """One call: what was asked and answered; times of any clock that all clients share."""

    asked: object
    answered: object
    begun: float
    ended: float = math.inf


class Model(NamedTuple, Generic[S]):
    """An object: its first state, and what a call makes of a state: (next state, answer)."""

    initial: S
    step: Callable[[S, object], tuple[S, object]]


def is_linearizable(history: Sequence[Call], model: Model[S]) -> bool:
    """Whether some order of the calls explains all answers."""
    calls = sorted(history, key=lambda call: call.begun)
    ends = [math.inf if call.answered is UNKNOWN else call.ended for call in calls]
    answered = sum(1 << index for index, call in enumerate(calls) if call.answered is not UNKNOWN)
    tried: set[tuple[int, S]] = set()
    waiting: list[tuple[int, S]] = [(0, model.initial)]
    while waiting:
        taken, state = waiting.pop()
        if taken & answered == answered:
            return True
        if (taken, state) in tried:
            continue
        tried.add((taken, state))
        waiting.extend(_steps(calls, ends, taken, state, model))
    return False


def _steps(calls: list[Call], ends: list[float], taken: int, state: S, model: Model[S]) -> list[tuple[int, S]]:
    """What can come next: calls that begun before any other that is left had ended."""
    found: list[tuple[int, S]] = []
    first_end = math.inf
    for index, call in enumerate(calls):
        if call.begun > first_end:
            break
        if taken >> index & 1:
            continue
        first_end = min(first_end, ends[index])
        after, answer = model.step(state, call.asked)
        if call.answered is UNKNOWN or call.answered == answer:
            found.append((taken | 1 << index, after))
    return found


def register(initial: Hashable = None) -> Model[Hashable]:
    """A register: ("write", value) answers None, ("read",) the value, ("cas", old, new) whether it was `old`."""

    def step(state: Hashable, asked: object) -> tuple[Hashable, object]:
        match asked:
            case ("write", value):
                return value, None
            case ("read",):
                return state, state
            case ("cas", old, new):
                return (new, True) if state == old else (state, False)
        raise ValueError(f"a register does not know {asked!r}")

    return Model(initial, step)


def counter(initial: int = 0) -> Model[int]:
    """A counter: ("add", n) answers the sum, ("read",) too."""

    def step(state: int, asked: object) -> tuple[int, object]:
        match asked:
            case ("add", int(number)):
                return state + number, state + number
            case ("read",):
                return state, state
        raise ValueError(f"a counter does not know {asked!r}")

    return Model(initial, step)
