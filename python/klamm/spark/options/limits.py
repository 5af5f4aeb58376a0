"""Where a query starts and ends: `startingOffsets` and the like. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.spark.options.format_options import Options
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.option_values import not_negative
from klamm.spark.ranges.offsets import EARLIEST, LATEST, Offsets, describe, parse_offsets


@dataclass(frozen=True, slots=True)
class AtSpecialOffset:
    """EARLIEST or LATEST for every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, which may be EARLIEST or LATEST."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition at or after a timestamp; if there is none, the end, or an error (`strict`)."""

    timestamp_ms: int
    strict: bool


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """Like AtTimestamp, with a timestamp for each partition."""

    timestamps_ms: Offsets
    strict: bool


Limit = AtSpecialOffset | AtOffsets | AtTimestamp | AtTimestamps


def parse_limit(options: Options, edge: str, default: AtSpecialOffset, strict: bool) -> tuple[str, Limit]:
    """The start or end, and the option that sets it: the first of timestamp, offsets by timestamp and offsets."""
    timestamp, by_timestamp, offsets = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp", f"{edge}Offsets"
    if timestamp in options:
        return timestamp, AtTimestamp(options.get(timestamp, not_negative, 0), strict)
    if by_timestamp in options:
        return by_timestamp, AtTimestamps(options.get(by_timestamp, _timestamps, {}), strict)
    at: Limit = default
    return offsets, options.get(offsets, _offsets, at)


def _offsets(value: str) -> Limit:
    match value.lower():
        case "earliest":
            return AtSpecialOffset(EARLIEST)
        case "latest":
            return AtSpecialOffset(LATEST)
    try:
        found = parse_offsets(value)
    except ValueError as error:
        raise ValueError(f'{error}; use earliest, latest or {{"topic": {{"0": 23, "1": -1}}}}') from None
    for partition, offset in found.items():
        if offset < EARLIEST:
            raise ValueError(f"offset {offset} of {partition} is negative; -1 is the latest, -2 the earliest")
    return AtOffsets(found)


def _timestamps(value: str) -> Offsets:
    try:
        found = parse_offsets(value)
    except ValueError as error:
        raise ValueError(f'{error}; use {{"topic": {{"0": 1700000000000}}}}, in milliseconds since 1970') from None
    for partition, timestamp in found.items():
        if timestamp < 0:
            raise ValueError(f"timestamp {timestamp} of {partition} is negative")
    return found


def check_not(options: Options, name: str, limit: Limit, offset: int, why: str) -> None:
    """Refuse a limit that is `offset` (EARLIEST or LATEST) for any partition."""
    match limit:
        case AtSpecialOffset(found) if found == offset:
            raise options.error(name, why)
        case AtOffsets(offsets) if wrong := [one for one, found in offsets.items() if found == offset]:
            raise options.error(name, f"{why} (partition {describe(wrong)})")
        case _:
            pass


def check_start_before_end(starting_option: str, starting: Limit, ending_option: str, ending: Limit) -> None:
    """Refuse a start and an end of the same kind that contradict each other. Raises OptionError."""
    match starting, ending:
        case AtOffsets(start), AtOffsets(end):
            kind = "offset"
        case AtTimestamps(start), AtTimestamps(end):
            kind = "timestamp"
        case AtTimestamp(first), AtTimestamp(last) if first > last:
            raise OptionError(f"startingTimestamp {first} is after endingTimestamp {last}")
        case _:
            return
    names = f"options '{starting_option}' and '{ending_option}'"
    if different := start.keys() ^ end.keys():
        raise OptionError(f"{names} must name the same partitions: only one of them has {describe(different)}")
    for partition in start:
        if start[partition] > end[partition] >= 0:
            raise OptionError(f"{names}: {kind} {start[partition]} of {partition} is after {end[partition]}")
