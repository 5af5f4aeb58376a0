"""The options of `format("klamm")` for reading: names, defaults and meaning of Spark's own Kafka source. Pure.

Spark hands options over with their names in small letters. Whatever has no meaning here is refused by name and value,
so that a typing error never reads something else than was meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from klamm.spark.client_options import client_options
from klamm.spark.format_options import NAMES as FORMAT_NAMES
from klamm.spark.format_options import SECRETS, FormatOptions, parse_format
from klamm.spark.offsets import EARLIEST, LATEST, Offsets, TopicPartition, describe, parse_offsets, parse_partitions

_T = TypeVar("_T")


class OptionError(ValueError):
    """An option is wrong; the message names it, its value and the way out."""


# ---- what is read ----


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches."""

    pattern: re.Pattern[str]


Subscription = Assign | Subscribe | SubscribePattern


# ---- where it starts and ends ----


@dataclass(frozen=True, slots=True)
class At:
    """Every partition's EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, EARLIEST or LATEST among them."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition whose timestamp is not before; without one its end, or an error (`strict`)."""

    timestamp_ms: int
    strict: bool


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """As AtTimestamp, with a timestamp for each partition."""

    timestamps_ms: Offsets
    strict: bool


Limit = At | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, and how."""

    subscription: Subscription
    starting: Limit
    ending: Limit
    """LATEST for a stream, which has no end."""
    starting_option: str
    """The name of the option that `starting` comes from, for messages; so for `ending`."""
    ending_option: str
    client: Mapping[str, str]
    """Keys of the Kafka client, without `kafka.`."""
    tasks_min: int | None
    task_rows_max: int | None
    task_bytes_max: int | None
    trigger_rows_max: int | None
    trigger_rows_min: int | None
    trigger_delay_max_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    retries: int
    retry_interval_ms: int
    value: FormatOptions
    key: FormatOptions

    @property
    def formats(self) -> tuple[FormatOptions, FormatOptions]:
        """Of all columns that can be decoded."""
        return self.key, self.value

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics by name; None where a pattern says which."""
        match self.subscription:
            case Subscribe(topics):
                return topics
            case Assign(partitions):
                return tuple(sorted({one.topic for one in partitions}))
            case SubscribePattern():
                return None


_COMMON: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *FORMAT_NAMES,
)
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_NAMES: Final = {name.lower(): name for name in (*_COMMON, *_ENDINGS)}


def parse_common(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query of which is not known yet whether it is a stream: those that are wrong for both fail."""
    return _parse(_Options(given), default_start=EARLIEST)


def parse_batch(given: Mapping[str, str]) -> SourceOptions:
    """The options of a batch query: from the earliest offsets to the latest unless they say otherwise."""
    options = _Options(given)
    parsed = _parse(options, default_start=EARLIEST)
    _check_not(options, parsed.starting_option, parsed.starting, LATEST, "a batch query cannot start there")
    _check_not(options, parsed.ending_option, parsed.ending, EARLIEST, "a batch query cannot end there")
    _check_start_before_end(parsed)
    return parsed


def parse_stream(given: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming query: from the latest offsets on unless they say otherwise."""
    options = _Options(given)
    for name in _ENDINGS:
        if name in options:
            raise options.error(name, "a stream has no end; take it away, or read with spark.read")
    return _parse(options, default_start=LATEST)


class _Options:
    """Options by the names that the documentation has; every failure names the option and its value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = {name.lower(): value for name, value in given.items()}
        for name, value in self.given.items():
            if not name.startswith("kafka.") and name not in _NAMES:
                told = "" if name.startswith("schema.registry.") else f" ('{value}')"
                raise OptionError(f"option '{name}'{told} is not known{guess(name, _NAMES)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.given

    def get(self, name: str, read: Callable[[str], _T], default: _T) -> _T:
        """The option's value as `read` reads it, whose ValueError says what is wrong."""
        value = self.given.get(name.lower())
        if value is None:
            return default
        try:
            return read(value.strip())
        except ValueError as error:
            raise self.error(name, str(error)) from None

    def error(self, name: str, why: str) -> OptionError:
        """What is wrong with an option that is there."""
        value = "(not shown)" if name in SECRETS else f"'{self.given[name.lower()]}'"
        return OptionError(f"option '{name}' is {value}: {why}")

    def missing(self, name: str, why: str) -> OptionError:
        """What an option that is not there is needed for."""
        return OptionError(f"option '{name}' is missing: {why}")


def guess(name: str, known: Mapping[str, str]) -> str:
    """The way out for a name that is not known, from those that are, by their small letters."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else f"; known are kafka.* and {', '.join(known.values())}"


def _parse(options: _Options, default_start: int) -> SourceOptions:
    strict = options.get("startingOffsetsByTimestampStrategy", _strategy, True)
    starting_option, starting = _limit(options, "starting", At(default_start), strict)
    ending_option, ending = _limit(options, "ending", At(LATEST), False)
    rows_max = options.get("maxOffsetsPerTrigger", _positive, None)
    rows_min = options.get("minOffsetsPerTrigger", _positive, None)
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise options.error("minOffsetsPerTrigger", f"it is above maxOffsetsPerTrigger, {rows_max}")
    return SourceOptions(
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        starting_option=starting_option,
        ending_option=ending_option,
        client=_client(options),
        tasks_min=options.get("minPartitions", _positive, None),
        task_rows_max=options.get("maxRecordsPerPartition", _positive, None),
        task_bytes_max=options.get("maxBytesPerPartition", _bytes, None),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_max_ms=options.get("maxTriggerDelay", _duration_ms, 15 * 60 * 1000),
        fail_on_data_loss=options.get("failOnDataLoss", _boolean, True),
        include_headers=options.get("includeHeaders", _boolean, False),
        poll_timeout_ms=options.get("kafkaConsumer.pollTimeoutMs", _positive, None) or 120_000,
        retries=options.get("fetchOffset.numRetries", _positive, None) or 3,
        retry_interval_ms=options.get("fetchOffset.retryIntervalMs", _not_negative, 1000),
        value=parse_format(options, "value"),
        key=parse_format(options, "key"),
    )


def _client(options: _Options) -> Mapping[str, str]:
    keys = client_keys(options.given)
    try:
        return client_options(keys, options.given.get("groupidprefix"))
    except ValueError as error:
        raise OptionError(str(error)) from None


def client_keys(given: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with `kafka.`, without it."""
    prefix = "kafka."
    keys = {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}
    if not keys.get("bootstrap.servers", "").strip():
        raise OptionError("option 'kafka.bootstrap.servers' is missing: host:port of one or more brokers")
    return keys


def _subscription(options: _Options) -> Subscription:
    kinds: dict[str, Callable[[str], Subscription]] = {
        "subscribe": _subscribe,
        "subscribePattern": _pattern,
        "assign": _assign,
    }
    given = [name for name in kinds if name in options]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise OptionError(
            f"one of the options subscribe, subscribePattern and assign must say what to read: {found} is there"
        )
    subscription = options.get(given[0], kinds[given[0]], None)
    assert subscription is not None
    return subscription


def _subscribe(value: str) -> Subscription:
    topics = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    if not topics:
        raise ValueError("it names no topic; say topic or topic,topic")
    return Subscribe(topics)


def _pattern(value: str) -> Subscription:
    if not value:
        raise ValueError("it matches no topic; say a regular expression such as orders-.*")
    try:
        return SubscribePattern(re.compile(value))
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None


def _assign(value: str) -> Subscription:
    partitions = parse_partitions(value)
    if not partitions:
        raise ValueError('it names no partition; say {"topic": [0, 1]}')
    return Assign(partitions)


def _limit(options: _Options, edge: str, default: At, strict: bool) -> tuple[str, Limit]:
    """Where to start or end, and the option that says so: the first of timestamp, offsets by timestamp and offsets."""
    timestamp, by_timestamp, offsets = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp", f"{edge}Offsets"
    if timestamp in options:
        return timestamp, AtTimestamp(options.get(timestamp, _not_negative, 0), strict)
    if by_timestamp in options:
        return by_timestamp, AtTimestamps(options.get(by_timestamp, _timestamps, {}), strict)
    at: Limit = default
    return offsets, options.get(offsets, _offsets, at)


def _offsets(value: str) -> Limit:
    match value.lower():
        case "earliest":
            return At(EARLIEST)
        case "latest":
            return At(LATEST)
    try:
        found = parse_offsets(value)
    except ValueError as error:
        raise ValueError(f'{error}; say earliest, latest or {{"topic": {{"0": 23, "1": -1}}}}') from None
    for partition, offset in found.items():
        if offset < EARLIEST:
            raise ValueError(f"offset {offset} of {partition} is negative; -1 is the latest, -2 the earliest")
    return AtOffsets(found)


def _timestamps(value: str) -> Offsets:
    try:
        found = parse_offsets(value)
    except ValueError as error:
        raise ValueError(f'{error}; say {{"topic": {{"0": 1700000000000}}}}, in milliseconds since 1970') from None
    for partition, timestamp in found.items():
        if timestamp < 0:
            raise ValueError(f"timestamp {timestamp} of {partition} is negative")
    return found


def _check_not(options: _Options, name: str, limit: Limit, offset: int, why: str) -> None:
    match limit:
        case At(found) if found == offset:
            raise options.error(name, why)
        case AtOffsets(offsets) if wrong := [one for one, found in offsets.items() if found == offset]:
            raise options.error(name, f"{why} (partition {describe(wrong)})")
        case _:
            pass


def _check_start_before_end(parsed: SourceOptions) -> None:
    match parsed.starting, parsed.ending:
        case AtOffsets(start), AtOffsets(end):
            kind = "offset"
        case AtTimestamps(start), AtTimestamps(end):
            kind = "timestamp"
        case AtTimestamp(first), AtTimestamp(last) if first > last:
            raise OptionError(f"startingTimestamp {first} is after endingTimestamp {last}")
        case _:
            return
    names = f"options '{parsed.starting_option}' and '{parsed.ending_option}'"
    if different := start.keys() ^ end.keys():
        raise OptionError(f"{names} must name the same partitions: only one of them has {describe(different)}")
    for partition in start:
        if start[partition] > end[partition] >= 0:
            raise OptionError(f"{names}: {kind} {start[partition]} of {partition} is after {end[partition]}")


# ---- values ----


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("say true or false")
    return value.lower() == "true"


def _strategy(value: str) -> bool:
    if value.lower() not in ("error", "latest"):
        raise ValueError("say error or latest")
    return value.lower() == "error"


def _not_negative(value: str) -> int:
    if not re.fullmatch(r"\+?[0-9]{1,19}", value) or int(value) >= 2**63:
        raise ValueError("say a whole number that is not negative")
    return int(value)


def _positive(value: str) -> int | None:
    try:
        number = _not_negative(value)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError("say a whole number above 0")
    return number


_UNITS_MS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


_BYTES: Final = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


def _bytes(value: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", value.lower())
    if found is None or found[2] not in _BYTES or not int(found[1]):
        raise ValueError("say a number above 0, of bytes or with a unit of k, m, g or t, such as 128m")
    return int(found[1]) << _BYTES[found[2]]


def _duration_ms(value: str) -> int:
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError("say a number with a unit of us, ms, s, m, h or d, such as 15m")
    return int(int(found[1]) * _UNITS_MS[found[2]])
