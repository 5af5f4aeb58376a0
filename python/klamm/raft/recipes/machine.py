"""The tree as a replicated state machine: nodes, the sessions that ephemeral nodes live with, and the newest changes.

There is no clock in it. A session ends by a command: of its owner, or of the leader that saw no renewal in time; that
command names how many renewals it has seen, so a renewal that came before it in the log wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.raft.recipes.errors import (
    BadVersionError,
    BusyError,
    ChangesLostError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    TreeError,
)
from klamm.raft.recipes.nodes import ROOT, Change, Node, child_of, is_below, name_of, parent_of
from klamm.raft.recipes.operations import barrier_state, checked_operation
from klamm.raft.recipes.packed import PackedError, Value, pack, unpack

# Part of what replicas agree on: never a setting.
CHANGES_MAX: Final = 10_000
COUNTER_MAX: Final = 2**63 - 1
_FORMAT: Final = "klamm.raft.recipes 1"


class _Entry:
    __slots__ = ("children", "created", "data", "modified", "next_sequence", "owner", "version")

    def __init__(self, data: bytes, position: int, owner: str | None) -> None:
        self.data, self.created, self.modified, self.owner = data, position, position, owner
        self.version = 0
        self.next_sequence = 0
        self.children: dict[str, None] = {}


@dataclass(slots=True)
class SessionState:
    """A session; `renewals` counts the renewals by its owner."""

    timeout_ms: int
    renewals: int = 0
    owned: dict[str, None] = field(default_factory=dict)


class TreeMachine:
    """Implements `klamm.raft.StateMachine`. Commands are packed lists: the operation's name, then its arguments."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {ROOT: _Entry(b"", 0, None)}
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self.sessions: dict[str, SessionState] = {}
        self.position = 0
        """The position of the newest change."""
        self._operations: dict[str, Callable[..., Value]] = {
            "open": self._open,
            "renew": self._renew,
            "end": self._end,
            "expire": self._expire,
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
            "add": self._add,
            "pop": self._pop,
            "enter": self._enter,
        }

    @property
    def operations(self) -> frozenset[str]:
        """The names of the queries."""
        return frozenset(self._operations)

    # Queries

    def get(self, path: str) -> Node | None:
        """The node there, None when there is none."""
        entry = self._entries.get(path)
        if entry is None:
            return None
        children = tuple(sorted(entry.children))
        return Node(path, entry.data, entry.version, entry.created, entry.modified, entry.owner, children)

    def exists(self, path: str) -> bool:
        """Whether there is a node."""
        return path in self._entries

    def children(self, path: str) -> list[str]:
        """The names of a node's children, in order; none where there is no node."""
        entry = self._entries.get(path)
        return sorted(entry.children) if entry is not None else []

    def first_child(self, path: str) -> str | None:
        """The first of a node's children."""
        entry = self._entries.get(path)
        return min(entry.children, default=None) if entry is not None else None

    def created(self, path: str) -> int | None:
        """The position that created the node."""
        entry = self._entries.get(path)
        return None if entry is None else entry.created

    def changes_since(self, position: int, top: str = ROOT) -> list[Change]:
        """The changes after `position` of `top` and its descendants. Raises ChangesLostError."""
        if position >= self.position:
            return []
        if not self._changes or self._changes[0].position > position + 1:
            oldest = self._changes[0].position if self._changes else self.position + 1
            text = f"changes since position {position} are asked for, and {oldest} is the oldest that is kept"
            raise ChangesLostError(text)
        found: list[Change] = []
        for change in reversed(self._changes):
            if change.position <= position:
                break
            if is_below(change.path, top):
                found.append(change)
        return found[::-1]

    # StateMachine

    def apply(self, command: bytes) -> bytes:
        """Carry out an operation; the packed result, or the packed error."""
        try:
            name, arguments = checked_operation(unpack(command))
            return pack([True, self._operations[name](*arguments)])
        except TreeError as error:
            return pack([False, error.NUMBER, str(error)])
        except ValueError as error:  # every operation checks before it changes anything
            return pack([False, TreeError.NUMBER, str(error)])

    def snapshot(self) -> Callable[[], bytes]:
        """The whole tree."""
        entries = [
            [path, one.data, one.version, one.created, one.modified, one.owner, one.next_sequence]
            for path, one in self._entries.items()
        ]
        sessions = [[name, one.timeout_ms, one.renewals, list(one.owned)] for name, one in self.sessions.items()]
        changes, position = list(self._changes), self.position
        return lambda: pack([_FORMAT, position, entries, sessions, changes])

    def restore(self, data: bytes) -> None:
        """Restore the state of a snapshot. Raises PackedError."""
        try:
            found, self.position, entries, sessions, changes = unpack(data)
            if found != _FORMAT:
                raise PackedError(f"a snapshot of {found!r}, and {_FORMAT!r} is what is known here")
            self._changes = deque((Change(*change) for change in changes), maxlen=CHANGES_MAX)
            self._restore_entries(entries)
            self.sessions = {}
            for name, timeout_ms, renewals, owned in sessions:
                session = self.sessions[name] = SessionState(timeout_ms)
                session.renewals, session.owned = renewals, dict.fromkeys(owned)
        except (TypeError, ValueError, KeyError) as error:
            raise PackedError(f"no snapshot of a tree: {error}") from None

    def _restore_entries(self, entries: list[Any]) -> None:
        self._entries = {}
        for path, data, version, created, modified, owner, next_sequence in entries:
            entry = self._entries[path] = _Entry(data, created, owner)
            entry.version, entry.modified, entry.next_sequence = version, modified, next_sequence
        for path in self._entries:
            if path != ROOT:
                self._entries[parent_of(path)].children[name_of(path)] = None

    # Sessions

    def _open(self, name: str, timeout_ms: int) -> None:
        if name in self.sessions:
            raise NodeExistsError(f"session {name} is open")
        self.sessions[name] = SessionState(timeout_ms)

    def _renew(self, names: list[str]) -> list[bool]:
        """Whether each of the sessions is still open."""
        alive = []
        for name in names:
            session = self.sessions.get(name)
            alive.append(session is not None)
            if session is not None:
                session.renewals += 1
        return alive

    def _end(self, name: str) -> None:
        self._session(name)
        for path in sorted(self.sessions.pop(name).owned):
            self._remove(path)

    def _expire(self, name: str, renewals: int) -> bool:
        session = self.sessions.get(name)
        if session is None or session.renewals != renewals:
            return False
        self._end(name)
        return True

    def _session(self, name: str) -> SessionState:
        session = self.sessions.get(name)
        if session is None:
            raise SessionLostError(f"session {name} is over")
        return session

    # Nodes

    def _create(self, path: str, data: bytes, owner: str | None, is_sequential: bool, with_parents: bool) -> str:
        session = self._session(owner) if owner is not None else None
        above = parent_of(path)
        missing = list(self._missing(above))
        if missing and not with_parents:
            raise NoNodeError(f"{above} is not there to have a child")
        top = self._entries.get(parent_of(missing[-1]) if missing else above)
        if top is not None and top.owner is not None:
            raise NotEmptyError(f"the node above {path} is ephemeral and can have no children")
        if not is_sequential and path in self._entries:
            raise NodeExistsError(f"{path} is there")
        for one in reversed(missing):
            self._put(one, b"", None)
        if is_sequential:
            entry = self._entries[above]
            path = self._next_path(path, entry)
        self._put(path, data, owner)
        if session is not None:
            session.owned[path] = None
        return path

    def _next_path(self, path: str, above: _Entry) -> str:
        while (found := f"{path}{above.next_sequence:010d}") in self._entries:
            above.next_sequence += 1  # a client has created a node of that very name
        above.next_sequence += 1
        return found

    def _missing(self, path: str) -> Iterator[str]:
        while path not in self._entries:
            yield path
            path = parent_of(path)

    def _set(self, path: str, data: bytes, version: int | None) -> int:
        entry = self._entry(path, version)
        self._write(path, entry, data)
        return entry.version

    def _delete(self, path: str, version: int | None) -> None:
        entry = self._entry(path, version)
        if entry.children or path == ROOT:
            raise NotEmptyError(f"{path} has {len(entry.children)} children, or is the root")
        self._forget_owner(path, entry)
        self._remove(path)

    def _add(self, path: str, number: int) -> int:
        """A counter: the node's data is a decimal number; an absent node is created with 0."""
        entry = self._entries.get(path)
        total = int(entry.data) + number if entry is not None else number
        if abs(total) > COUNTER_MAX:
            raise ValueError(f"{total} is beyond what a counter holds")
        data = b"%d" % total
        if entry is None:
            self._create(path, data, None, False, True)
        else:
            self._write(path, entry, data)
        return total

    def _pop(self, path: str) -> list[Value] | None:
        """Take the first child: its name and data; None when there is none."""
        name = self.first_child(path)
        if name is None:
            return None
        child = child_of(path, name)
        data = self._entries[child].data
        self._delete(child, None)
        return [name, data]

    def _enter(self, path: str, member: str, session: str, count: int) -> list[int]:
        """Enter a barrier: its round, and the position that released it or 0.

        The barrier's data contain both. A round is over when all members at its release have left.
        """
        self._session(session)
        entry = self._entries.get(path)
        round_number, released = barrier_state(entry.data if entry is not None else b"")
        if released and self.members(path, released):
            raise BusyError(f"round {round_number} of {path} has not been left by all")
        if released:
            round_number, released = round_number + 1, 0
        self._create(child_of(path, member), b"", session, False, True)
        entry = self._entries[path]
        if len(entry.children) >= count:
            released = self.position
        self._write(path, entry, pack([round_number, released]))
        return [round_number, released]

    def members(self, path: str, released: int) -> list[str]:
        """The members of a barrier when it was released."""
        return [name for name in self.children(path) if self._entries[child_of(path, name)].created <= released]

    # Changes

    def _entry(self, path: str, version: int | None) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(f"{path} is not there")
        if version is not None and version != entry.version:
            raise BadVersionError(f"{path} has version {entry.version}, not {version}")
        return entry

    def _put(self, path: str, data: bytes, owner: str | None) -> None:
        self._note("created", path)
        self._entries[path] = _Entry(data, self.position, owner)
        self._entries[parent_of(path)].children[name_of(path)] = None

    def _write(self, path: str, entry: _Entry, data: bytes) -> None:
        self._note("changed", path)
        entry.data, entry.modified = data, self.position
        entry.version += 1

    def _remove(self, path: str) -> None:
        self._note("deleted", path)
        del self._entries[path]
        del self._entries[parent_of(path)].children[name_of(path)]

    def _forget_owner(self, path: str, entry: _Entry) -> None:
        if entry.owner is not None:
            self.sessions[entry.owner].owned.pop(path, None)

    def _note(self, kind: Any, path: str) -> None:
        self.position += 1
        self._changes.append(Change(self.position, kind, path))
