"""Checks whether the history of calls to one object is linearizable (Herlihy, Wing 1990).

A history is a list of calls with their start and end times. It is linearizable if the calls can be ordered such that no
call precedes one that ended before it started, and the model gives every call the response that it received. A call
without a response took effect at any time after its start, or never. The algorithm is Wing and Gong's search with
Lowe's cache. It is exponential in the number of concurrent calls, so keep those few, and check each object of a store
by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)

UNKNOWN = object()
"""The response of a call whose outcome is unknown."""


class Call(NamedTuple):
    """One call: request and response, and times of a clock that all clients share."""

    asked: object
    answered: object
    begun: float
    ended: float = math.inf


class Model(NamedTuple, Generic[S]):
    """An object: its initial state, and the effect of a call on a state: (next state, response)."""

    initial: S
    step: Callable[[S, object], tuple[S, object]]


def is_linearizable(history: Sequence[Call], model: Model[S]) -> bool:
    """Whether some order of the calls explains all responses."""
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
    """The possible next calls: those that started before any other remaining call had ended."""
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
        raise ValueError(f"a register does not support {asked!r}")

    return Model(initial, step)


def counter(initial: int = 0) -> Model[int]:
    """A counter: ("add", n) answers the sum, ("read",) too."""

    def step(state: int, asked: object) -> tuple[int, object]:
        match asked:
            case ("add", int(number)):
                return state + number, state + number
            case ("read",):
                return state, state
        raise ValueError(f"a counter does not support {asked!r}")

    return Model(initial, step)
