"""Moments of a history as a user names them: an offset, a time, a duration ago, the end."""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

from klamm.metadata.errors import HistoryError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(\d+)([smhd])(?: ago)?")
_FROM_END: Final = re.compile(r"end-(\d+)")


class Moment(NamedTuple):
    """One of three: an offset, that record included; a distance back from the last record; a time in ms."""

    offset: int | None = None
    before_end: int | None = None
    time_ms: int | None = None


END: Final = Moment(before_end=0)


def parse_moment(text: str, now_ms: int) -> Moment:
    """`42`, `end`, `end-10`, `15m` (ago), or an ISO 8601 time, local unless it names a zone. HistoryError."""
    text = text.strip()
    if text.isdecimal():
        return Moment(offset=int(text))
    if text == "end":
        return END
    if (match := _FROM_END.fullmatch(text)) is not None:
        return Moment(before_end=int(match[1]))
    if (match := _AGO.fullmatch(text)) is not None:
        return Moment(time_ms=now_ms - int(match[1]) * _UNITS[match[2]] * 1000)
    try:
        return Moment(time_ms=int(datetime.datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise HistoryError(
            f"'{text}' is no moment: use an offset, end, end-10, 15m (ago), or a time such as 2026-01-31T12:00"
        ) from None


def time_text(timestamp_ms: int) -> str:
    """`2026-01-31 12:00:00.123`, local; a dash for a time that is not known."""
    if timestamp_ms < 0:
        return "-"
    try:
        time = datetime.datetime.fromtimestamp(timestamp_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{time:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def iso_text(timestamp_ms: int) -> str | None:
    """The same for a machine: UTC, ISO 8601. None when it is not known."""
    if timestamp_ms < 0:
        return None
    try:
        time = datetime.datetime.fromtimestamp(timestamp_ms // 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{time:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
