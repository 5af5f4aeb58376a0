"""Records as a user gives them: arguments, lines of a file or of stdin, JSON. Any bytes are allowed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from klamm.client import ClientError

Header = tuple[str, bytes | None]
Row = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""The fastest input of the record codec: timestamp in ms, key, value, headers."""


class RecordInput:
    """Turns lines into records."""

    def __init__(self, *, key: str | None, separator: str | None, headers: Sequence[str], as_json: bool) -> None:
        """`key` and `headers` (NAME=VALUE) apply to every record without its own. Raises ClientError."""
        self._key = None if key is None else os.fsencode(key)
        self._separator = None if separator is None else os.fsencode(separator)
        self._headers = [_pair(text) for text in headers]
        self._as_json = as_json
        if self._separator == b"":
            raise ClientError("--key-separator is empty")

    def of_words(self, words: Iterable[str]) -> Iterator[Row]:
        """One record per argument."""
        return self.of_lines(map(os.fsencode, words))

    def of_file(self, file: Path) -> Iterator[Row]:
        """One record per line of a file. Raises ClientError if it cannot be read."""
        try:
            with file.open("rb") as lines:
                yield from self.of_lines(lines)
        except OSError as error:
            raise ClientError(f"cannot read {file}: {error.strerror}") from None

    def of_lines(self, lines: Iterable[bytes]) -> Iterator[Row]:
        """One record per line, without the line end. Raises ClientError with the line number."""
        for number, line in enumerate(lines, start=1):
            text = line.rstrip(b"\r\n") if line.endswith(b"\n") else line
            now_ms = time.time_ns() // 1_000_000
            if self._as_json:
                yield self._of_json(text, number, now_ms)
            elif self._separator is None:
                yield now_ms, self._key, text, self._headers
            else:
                key, found, value = text.partition(self._separator)
                if not found:
                    raise ClientError(f"line {number} has no '{os.fsdecode(self._separator)}'")
                yield now_ms, key, value, self._headers

    def _of_json(self, text: bytes, number: int, now_ms: int) -> Row:
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ClientError(f"line {number} is not JSON: {error}") from None
        if not isinstance(fields, dict) or "value" not in fields:
            raise ClientError(f'line {number} is not {{"value": ..., "key": ..., "headers": {{...}}}}')
        given = fields.get("headers") or {}
        if not isinstance(given, dict):
            raise ClientError(f"line {number}: headers is not an object")
        timestamp_ms = fields.get("timestamp_ms", now_ms)
        if not isinstance(timestamp_ms, int):
            raise ClientError(f"line {number}: timestamp_ms is not a number")
        key = _bytes(fields.get("key"))
        own = [(_encodable(name, f"line {number}"), _bytes(value)) for name, value in given.items()]
        return timestamp_ms, self._key if key is None else key, _bytes(fields["value"]), [*self._headers, *own]


def _bytes(value: Any) -> bytes | None:
    """Strings as text, other JSON values as JSON, null as null."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # JSON strings may contain lone surrogates, which are not valid UTF-8.
    return text.encode(errors="surrogatepass")


def _pair(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise ClientError(f"--header {text} is not name=value")
    return _encodable(name, "--header"), os.fsencode(value)


def _encodable(name: str, where: str) -> str:
    """A header's name must be text; its value may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ClientError(f"{where}: the header's name {name!r} is not text") from None
    return name
