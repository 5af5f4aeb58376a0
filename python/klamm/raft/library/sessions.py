"""The replicated state: the program's state machine, and which commands of which client it has applied already.

A command that is sent again is not applied again: it gets the result of the first time. Everything here is a function
of the log, so all replicas remember and forget the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from klamm.raft.library.entries import CLIENT_BYTES, OpenSession, decode
from klamm.raft.library.errors import CommandRefusedError
from klamm.raft.library.state_machine import StateMachine

# Part of what replicas agree on: never a setting.
SESSIONS_MAX: Final = 10_000
CHUNK_BYTES: Final = 1 << 20

_MAGIC: Final = b"klamm.raft.1"
_LENGTHS: Final = struct.Struct(">12sQQ")
_SESSION: Final = struct.Struct(f">{CLIENT_BYTES}sQI")
_RESULT: Final = struct.Struct(">QBI")


class CommandStatus(IntEnum):
    """The outcome of a command."""

    APPLIED = 0
    REFUSED = 1
    NO_SESSION = 2


# An enum's member costs more to look up than to use.
_APPLIED: Final = CommandStatus.APPLIED


class Outcome(NamedTuple):
    """A command's outcome and its result; for a refusal, the text in UTF-8."""

    fate: CommandStatus
    data: bytes


class Applied(NamedTuple):
    """The outcome of a client's command; None when it was answered before and forgotten."""

    client: bytes
    sequence: int
    outcome: Outcome | None


class StateDamagedError(ValueError):
    """The bytes are no snapshot of a replicated state."""


class _Session:
    __slots__ = ("answered_below", "results")

    def __init__(self, answered_below: int = 0) -> None:
        self.answered_below = answered_below
        self.results: dict[int, Outcome] = {}

    def forget_below(self, sequence: int) -> None:
        """Drop the results that the client has received."""
        if sequence - self.answered_below > len(self.results):
            self.results = {number: result for number, result in self.results.items() if number >= sequence}
        else:
            for number in range(self.answered_below, sequence):
                self.results.pop(number, None)
        self.answered_below = sequence


class ReplicatedState:
    """A state machine with the sessions of its clients."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self._sessions: dict[bytes, _Session] = {}  # the most recently used session is last
        self._newest: _Session | None = None

    def has_session(self, client: bytes) -> bool:
        """Whether that client's commands are accepted."""
        return client in self._sessions

    def apply(self, value: bytes) -> Applied | None:
        """Apply a record of the log; None for one without an outcome.

        Raises EntryError, and whatever the state machine raises but CommandRefusedError.
        """
        entry = decode(value)
        if isinstance(entry, OpenSession):
            self._open(entry.client)
            return None
        client, sequence, answered_below, payload = entry
        session = self._sessions.get(client)
        if session is None:
            return Applied(client, sequence, Outcome(CommandStatus.NO_SESSION, b""))
        if session is not self._newest:
            self._sessions[client] = self._sessions.pop(client)
            self._newest = session
        if answered_below > session.answered_below:
            session.forget_below(answered_below)
        if sequence < session.answered_below:
            return Applied(client, sequence, None)
        outcome = session.results.get(sequence)
        if outcome is None:
            outcome = session.results[sequence] = self._carry_out(payload)
        return Applied(client, sequence, outcome)

    def outcome_of(self, client: bytes, sequence: int) -> Outcome | None:
        """The outcome of a command that was applied and not forgotten."""
        session = self._sessions.get(client)
        return None if session is None else session.results.get(sequence)

    def _open(self, client: bytes) -> None:
        session = self._sessions.pop(client) if client in self._sessions else _Session()
        self._sessions[client] = self._newest = session
        if len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def _carry_out(self, payload: bytes) -> Outcome:
        try:
            result = self.machine.apply(payload)
        except CommandRefusedError as error:
            return Outcome(CommandStatus.REFUSED, str(error).encode())
        if not isinstance(result, bytes):
            name = type(self.machine).__name__
            raise TypeError(f"{name}.apply must return bytes, and returned {type(result).__name__}")
        return Outcome(_APPLIED, result)

    # Snapshots

    def hold(self) -> Callable[[], list[bytes]]:
        """Capture the current state; the returned callable creates the values of a snapshot, in any thread."""
        sessions, machine = _encode_sessions(self._sessions), self.machine.snapshot()

        def values() -> list[bytes]:
            data = machine if isinstance(machine, bytes) else machine()
            head = _LENGTHS.pack(_MAGIC, len(sessions), len(data))
            return [head, *_chunks(sessions), *_chunks(data)]

        return values

    def restore(self, values: Sequence[bytes]) -> None:
        """Restore the state of a snapshot. Raises StateDamagedError."""
        if not values or len(values[0]) != _LENGTHS.size:
            raise StateDamagedError("it does not begin as a snapshot of a replicated state")
        magic, session_bytes, machine_bytes = _LENGTHS.unpack(values[0])
        if magic != _MAGIC:
            raise StateDamagedError(f"it begins with {magic!r}, and {_MAGIC!r} is what is known here")
        data = b"".join(values[1:])
        if len(data) != session_bytes + machine_bytes:
            raise StateDamagedError(f"it holds {len(data)} bytes and speaks of {session_bytes} + {machine_bytes}")
        self._sessions, self._newest = _decode_sessions(data[:session_bytes]), None
        self.machine.restore(data[session_bytes:])


def _chunks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))


def _encode_sessions(sessions: dict[bytes, _Session]) -> bytes:
    parts: list[bytes] = []
    for client, session in sessions.items():
        parts.append(_SESSION.pack(client, session.answered_below, len(session.results)))
        for sequence, (fate, data) in session.results.items():
            parts.append(_RESULT.pack(sequence, fate, len(data)) + data)
    return b"".join(parts)


def _decode_sessions(data: bytes) -> dict[bytes, _Session]:
    sessions: dict[bytes, _Session] = {}
    position = 0
    try:
        while position < len(data):
            client, answered_below, count = _SESSION.unpack_from(data, position)
            position += _SESSION.size
            session = sessions[client] = _Session(answered_below)
            for _ in range(count):
                sequence, fate, size = _RESULT.unpack_from(data, position)
                position += _RESULT.size + size
                session.results[sequence] = Outcome(CommandStatus(fate), data[position - size : position])
    except (struct.error, ValueError) as error:
        raise StateDamagedError(f"its sessions cannot be read: {error}") from None
    if position != len(data):
        raise StateDamagedError(f"its sessions end at {position} of {len(data)} bytes")
    return sessions
