"""A panic of the engine is an exception of klamm: guards for `Exception` contain it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm._engine.groups import TopicPattern
from klamm._engine.panics import EnginePanicError, panic_with
from klamm.coordinator.groups import compiled_patterns


def test_a_panic_is_an_exception_with_the_cause_as_its_text() -> None:
    with pytest.raises(Exception, match=r"^what is wrong$") as raised:
        panic_with("what is wrong")
    assert raised.type is EnginePanicError
    assert EnginePanicError.__mro__[1] is Exception
    assert f"{EnginePanicError.__module__}.{EnginePanicError.__qualname__}" == "klamm._engine.panics.EnginePanicError"


class Names(list[str]):
    """What the engine reads by calling Python, where it panics."""

    def __iter__(self) -> Iterator[str]:
        panic_with("in a callback")
        return super().__iter__()


def test_a_panic_passes_through_the_engine_that_calls_python() -> None:
    with pytest.raises(EnginePanicError, match="in a callback"):
        TopicPattern("a").among(Names(["a"]))


def test_a_pattern_that_the_engine_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_patterns, "TopicPattern", panic_with)
    compiled_patterns.compiled.cache_clear()
    assert compiled_patterns.compiled("a panic") == "it cannot be read"
    compiled_patterns.compiled.cache_clear()
