"""Changes of folded state that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final[Any] = object()


class Journal:
    """Applies changes to mappings and attributes, and adds the inverse of each to `undo` for a rollback.

    While a log is replayed there is nothing to roll back: then `undo` is None.
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: list[Callable[[], None]] | None = None) -> None:
        self._undo = undo

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call `undo` in a rollback: the inverse of a change outside of the journal."""
        if self._undo is not None:
            self._undo.append(undo)

    def put(self, mapping: MutableMapping[K, V], key: K, value: V) -> None:
        """`mapping[key] = value`."""
        if self._undo is not None:
            self._undo.append(partial(_restore, mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def put_all(self, mapping: MutableMapping[K, V], items: Mapping[K, V]) -> None:
        """`mapping.update(items)`, with one entry for all of them."""
        if self._undo is not None:
            self._undo.append(partial(_restore_all, mapping, {key: mapping.get(key, _ABSENT) for key in items}))
        mapping.update(items)

    def remove(self, mapping: MutableMapping[K, V], key: K) -> V | None:
        """`mapping.pop(key, None)`."""
        if key not in mapping:
            return None
        old = mapping.pop(key)
        if self._undo is not None:
            self._undo.append(partial(_restore, mapping, key, old))
        return old

    def count(self, mapping: MutableMapping[K, int], key: K, by: int) -> None:
        """Add `by` to a counter; one that reaches 0 is removed."""
        count = mapping.get(key, 0) + by
        if count:
            self.put(mapping, key, count)
        else:
            self.remove(mapping, key)

    def assign(self, owner: Any, name: str, value: object) -> None:
        """`owner.name = value`."""
        if self._undo is not None:
            self._undo.append(partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def _restore(mapping: MutableMapping[K, V], key: K, old: V) -> None:
    if old is _ABSENT:
        del mapping[key]
    else:
        mapping[key] = old


def _restore_all(mapping: MutableMapping[K, V], old: Mapping[K, V]) -> None:
    for key, value in old.items():
        _restore(mapping, key, value)


def value_before(undo: Iterable[Callable[[], None]], mapping: Mapping[K, V], key: K) -> V | None:
    """`mapping.get(key)` before the changes of a journal that `undo` (oldest first) would revert."""
    for one in undo:
        if not isinstance(one, partial):
            continue
        if one.func is _restore and one.args[0] is mapping and one.args[1] == key:
            old: V = one.args[2]
        elif one.func is _restore_all and one.args[0] is mapping and key in one.args[1]:
            old = one.args[1][key]
        else:
            continue
        return None if old is _ABSENT else old
    return mapping.get(key)
