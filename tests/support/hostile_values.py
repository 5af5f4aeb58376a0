"""Requests of transactions and groups with one wrong value: the candidates for each field, and how they are sent."""

from __future__ import annotations

import copy
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class
from tests.support.frames import read_frame, send_frame

NAME: Final = "<name>"
"""Stands for the name that a case's group, member or transactional id has."""
TOPIC: Final = "hostile"
TOPIC_ID: Final = b"<the topic's id>"
PRODUCER: Final = -1_000_001
"""Stands for the producer id that the request before got."""
EPOCH: Final = -1_002
"""Stands for the producer's or member's epoch, or the generation, in the response before."""
MEMBER: Final = "<member>"
"""Stands for the id of a classic member in the response before."""

CLOSED: Final = "CLOSED"
SILENT: Final = "SILENT"
ANSWER_S_MAX: Final = 20.0
ATTEMPTS_MAX: Final = 20
PAUSE_S: Final = 0.02
NUMBERS: Final = (-(2**31), -2, -1, 0, 7, 2**31 - 1, 2**63 - 1)
TEXTS: Final = (None, "", " ", "a\0b", "x" * 300)
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
        ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
        ErrorCode.NOT_COORDINATOR.name,
        ErrorCode.CONCURRENT_TRANSACTIONS.name,
    }
)

Fields = dict[str, Any]
Path = tuple[str | int, ...]


class Request(NamedTuple):
    """A request with placeholders, and the requests to send before it."""

    key: int
    version: int
    fields: Fields
    before: tuple[Request, ...] = ()


class Variant(NamedTuple):
    """Another value for one field of a request."""

    path: Path
    value: Any

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))} = {self.value!r:.60}"


def variants(value: Any, path: Path = ()) -> Iterator[Variant]:
    """Each leaf with each wrong value, and each list empty, doubled and null."""
    match value:
        case dict():
            for name, field in value.items():
                yield from variants(field, (*path, name))
        case list():
            yield Variant(path, None)
            yield Variant(path, [])
            yield Variant(path, [*value, *value])
            for at, item in enumerate(value):
                yield from variants(item, (*path, at))
        case bool():
            yield Variant(path, not value)
        case int():
            yield from (Variant(path, number) for number in NUMBERS)
        case bytes() if value != TOPIC_ID:
            yield from (Variant(path, blob) for blob in (b"", b"x" * 300))
        case bytes():
            yield from (Variant(path, topic_id) for topic_id in (bytes(16), b"\x80" * 16))
        case None:
            yield from (Variant(path, text) for text in TEXTS[1:])
            yield Variant(path, [])
        case _:
            yield from (Variant(path, text) for text in TEXTS)


def replaced(fields: Fields, variant: Variant) -> Fields:
    """The fields with the variant's value."""
    changed: Any = copy.deepcopy(fields)
    holder = changed
    for step in variant.path[:-1]:
        holder = holder[step]
    holder[variant.path[-1]] = variant.value
    return changed  # type: ignore[no-any-return]


@dataclass
class Known:
    """The values of the placeholders at one broker."""

    name: str
    topic_id: bytes
    producer_id: int = -1
    epoch: int = -1
    member: str = ""

    def fill(self, value: Any) -> Any:
        """The value with its placeholders filled in."""
        if isinstance(value, dict):
            return {name: self.fill(field) for name, field in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, str):
            return value.replace(NAME, self.name).replace(MEMBER, self.member)
        known = {TOPIC_ID: self.topic_id, PRODUCER: self.producer_id, EPOCH: self.epoch}
        return known.get(value, value) if isinstance(value, int | bytes) and not isinstance(value, bool) else value

    def learn(self, response: Any) -> None:
        """Remember the ids of a response."""
        self.producer_id = getattr(response, "producer_id", self.producer_id)
        for name in ("producer_epoch", "member_epoch", "generation_id"):
            self.epoch = getattr(response, name, self.epoch)
        self.member = getattr(response, "member_id", None) or self.member


class Broker:
    """Sends the requests of one client, and reads the error codes of the responses."""

    def __init__(self, port: int, answer_s_max: float = ANSWER_S_MAX) -> None:
        self._port, self._answer_s_max = port, answer_s_max
        self._socket: socket.socket | None = None

    def ask(self, key: int, version: int, body: bytes) -> Any:
        """The response, CLOSED or SILENT."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._answer_s_max)
        is_flexible = request_class(key, version).__header_schema__.__version__ >= 2
        header = struct.pack(">hhih", key, version, 7, 6) + b"client" + (b"\0" if is_flexible else b"")
        try:
            send_frame(self._socket, header + body)
            answer = read_frame(self._socket)
        except (ConnectionError, EOFError, AssertionError, struct.error):
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return SILENT
        return decode_response(key, version, answer[5 if request_class(key, version).__flexible__ else 4 :])

    def answer(self, request: Request, known: Known, variant: Variant | None = None) -> Any:
        """The response. Raises ValueError, OverflowError or TypeError if no message can contain the value."""
        for before in request.before:
            known.learn(self.patiently(before.key, before.version, encoded(before, known.fill(before.fields))))
        good = known.fill(request.fields)
        body = encoded(
            request, good if variant is None else replaced(good, Variant(variant.path, known.fill(variant.value)))
        )
        return self.patiently(request.key, request.version, body)

    def patiently(self, key: int, version: int, body: bytes) -> Any:
        """The first response with a final error code, or the last one: a wrong value may get only retriable errors."""
        for attempt in range(ATTEMPTS_MAX):
            answer = self.ask(key, version, body)
            if not PASSING.intersection(codes(answer)):
                break
            time.sleep(PAUSE_S * attempt)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def encoded(request: Request, values: Fields) -> bytes:
    """The body of a request."""
    return encode(build(request_class(request.key, request.version), **values))


def codes(answer: Any) -> list[str]:
    """The names of the error codes in a response, sorted: some lists of Apache Kafka have the order of a hash map."""
    if isinstance(answer, str):
        return [answer]
    found: list[str] = []
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.append(ErrorCode(int(value)).name)
        elif isinstance(value, tuple):
            found += [code for item in value if is_dataclass(item) for code in codes(item)]
    return sorted(found)
