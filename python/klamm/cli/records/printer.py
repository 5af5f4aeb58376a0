"""Prints records, as text or as lines of JSON."""

from __future__ import annotations

import base64
import datetime
import json
import sys
from typing import Any

from klamm.cli.records.reader import Reader, Received
from klamm.cli.records.share_reader import ShareReader


class Printer:
    """Prints records until `count` were printed, if it is a number."""

    def __init__(self, count: int | None, *, show_key: bool, as_json: bool) -> None:
        """Nothing was printed yet."""
        self.left = count
        """The number of records to be printed; None if there is no limit."""
        self._show_key = show_key
        self._as_json = as_json

    @property
    def is_done(self) -> bool:
        """Whether `count` records were printed."""
        return self.left == 0

    def print_some(self, reader: Reader | ShareReader) -> None:
        """Print the records of one fetch from each leader."""
        try:
            for received in reader.poll():
                _print(received, show_key=self._show_key, as_json=self._as_json)
                reader.advance(received.where, received.record.offset)
                if self.left is not None:
                    self.left -= 1
                    if self.left == 0:
                        return
        finally:
            # Records must have reached the reader of stdout before their offsets are committed.
            sys.stdout.flush()


def _print(received: Received, *, show_key: bool, as_json: bool) -> None:
    record = received.record
    if as_json:
        line = json.dumps(_as_json(received), ensure_ascii=False)
    else:
        key = f"{_text(record.key)}\t" if show_key else ""
        line = key + _text(record.value)
    print(line)


def _as_json(received: Received) -> dict[str, Any]:
    where, record, delivery_count = received
    counted = {} if delivery_count is None else {"delivery_count": delivery_count}
    return {
        "topic": where.topic,
        "partition": where.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "time": _time(record.timestamp_ms),
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": {name: _json_value(value) for name, value in record.headers},
        **counted,
    }


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        return datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return None


def _text(data: bytes | None) -> str:
    """The text, with invalid bytes as escapes; null as `null`."""
    return "null" if data is None else data.decode(errors="backslashreplace")


def _json_value(data: bytes | None) -> Any:
    """Text, null, or the base64 of bytes that are not text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
